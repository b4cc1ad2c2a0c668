"""The report of an audit: one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import chess
import chess.svg
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from movemask import __version__
from movemask.audit import plots
from movemask.audit.samples import Skipped
from movemask.audit.summary import ModelSummary, Threshold
from movemask.audit.tally import SHOWN
from movemask.leakage.kinds import KINDS, MASK_BLIND, MEANINGS, MULTIPLIED, RAW

#: Boards shown per network and kind; few, so that the page opens quickly.
_BOARDS = {RAW: 6, MULTIPLIED: 3}
_BOARD_PIXELS = 250
_LEGAL, _ILLEGAL = "#2b7a3d", "#c1272d"

_ABOUT = {
    RAW: "what plain softmax gives to illegal moves",
    MULTIPLIED: "what <code>softmax(logits * mask)</code> gives to illegal moves",
}


@dataclass(frozen=True, slots=True)
class AuditRun:
    """What a report says of an audit besides its networks."""

    command: str
    sources: Sequence[str]
    skipped: Skipped
    thresholds: Sequence[Threshold]
    kinds: Sequence[str]
    least: float


def page(models: Sequence[ModelSummary], audited: AuditRun) -> str:
    """The HTML of the report."""
    environment = Environment(
        loader=PackageLoader("movemask.audit"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"figure": _figure, "count": _count, "percent": _percent}
    return environment.get_template("report.html.j2").render(
        version=__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        audited=audited,
        models=models,
        colours={model.name: plots.colour_of(models, model) for model in models},
        kinds=[kind for kind in KINDS if kind in audited.kinds],
        meanings=MEANINGS,
        zeros={model.name: _zeros(model) for model in models},
        mask_blind=MASK_BLIND,
        distributions=[
            (
                kind,
                Markup(_ABOUT[kind]),
                Markup(plots.distribution(models, kind)),
                Markup(plots.by_group(models, kind)),
            )
            for kind in SHOWN
            if kind in audited.kinds
        ],
        causes=Markup(plots.by_cause(models)),
        boards=[
            (kind, Markup(_ABOUT[kind]), [(model, _boards(model, kind)) for model in models])
            for kind in SHOWN
            if kind in audited.kinds
        ],
    )


def _zeros(model: ModelSummary) -> dict[str, float]:
    """The kinds that leaked nothing, with their mean divergence, which is rounding error."""
    return {kind: model.of(kind).mean_kl or 0.0 for kind in KINDS if _is_zero(model, kind)}


def _is_zero(model: ModelSummary, kind: str) -> bool:
    """Whether the mistake leaked nothing anywhere, changed no top move and gave no legal move probability 0."""
    cell = model.of(kind)
    return cell.count > 0 and not cell.unmeasured and cell.max == cell.flips == cell.infinite == 0


def _boards(model: ModelSummary, kind: str) -> list[dict[str, Any]]:
    """The worst positions with their diagrams."""
    return [{"row": row, "svg": Markup(_board(row))} for row in model.worst.get(kind, [])[: _BOARDS[kind]]]


def _board(row: dict[str, Any]) -> str:
    """The position from the side to move: legal moves green, illegal ones red, more opaque the more probable."""
    board = chess.Board(row["fen"], chess960=row["chess960"])
    arrows = []
    for moves, colour in ((row["legal"][:3], _LEGAL), (row["illegal"][:3], _ILLEGAL)):
        for move in reversed(moves):
            if move["probability"] >= 0.01:
                parsed = chess.Move.from_uci(move["uci"])
                strength = round(96 + 159 * min(1.0, move["probability"]))
                arrows.append(chess.svg.Arrow(parsed.from_square, parsed.to_square, color=f"{colour}{strength:02x}"))
    check = board.king(board.turn) if board.is_check() else None
    return str(
        chess.svg.board(
            board, orientation=board.turn, arrows=arrows, check=check, size=_BOARD_PIXELS, coordinates=False
        )
    )


def _figure(value: float | None) -> str:
    """A leakage for people."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if value >= 0.001:
        return f"{100 * value:.3g} %"
    return f"{value:.1e}"


def _count(value: int) -> str:
    return f"{value:,}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
