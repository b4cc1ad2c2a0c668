"""The most telling moves of a game: those that lost most, the likely ones that were not found, the rare ones that
worked. By the PGN's evaluations, and where a move has none, by the network's forecasts before and after it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

import chess

from movemask.games.forecast import value_after
from movemask.games.reports import FEW_FIND, MISTAKE, MOST_PLAY, GameReport, MoveReport

Kind = Literal["trap", "missed", "mistake", "gem", "surprise"]

#: Moments of a game, at most.
_MOST = 5

#: Nats of surprise by which a rare move that works is as telling as one that loses everything.
_NATS = 10


@dataclass(frozen=True, slots=True)
class Moment:
    """A telling move. `change` is that of the mover's expected score, -1 to 1; `best` is the likely move that was not
    found; `text` says it in words."""

    ply: int
    kind: Kind
    change: float
    text: str
    best: chess.Move | None


def moments_of(report: GameReport) -> list[Moment]:
    """At most five moments of a game, the most telling first: a rare move that worked counts by its surprise, any other
    by what it lost. Forecasts are used where the report has them; `unclear` says which it needs."""
    found: list[tuple[float, MoveReport, Kind, float]] = []
    for move, following in zip_longest(report.moves, report.moves[1:]):
        change = move.chances[1] - move.chances[0] if move.chances else forecast_change(move, following)
        if change is not None and move.legal > 1 and (kind := _kind(move, change)) is not None:
            weight = min(move.surprise / _NATS, 1) if kind in ("gem", "surprise") else -change
            found.append((round(-weight, 3), move, kind, change))
    found.sort(key=lambda one: one[0])  # of equals the first
    return [_moment(move, kind, change) for _, move, kind, change in found[:_MOST]]


def unclear(report: GameReport, place: int) -> bool:
    """Whether a moment depends on the forecast before a move: that of this move, or of the one before it."""
    near = report.moves[max(0, place - 1) : place + 1]
    return any(move.chances is None and move.legal > 1 and move.probability <= FEW_FIND for move in near)


def forecast_change(move: MoveReport, following: MoveReport | None) -> float | None:
    """What a move changes of its mover's expected score by the forecasts before and after it; None without one."""
    if move.forecast is None:
        return None
    position = move.position.after(move.move) if following is None else following.position
    after = value_after(position.board, following.forecast if following else None)
    return None if after is None else after.score - move.forecast.score


def percent(probability: float) -> str:
    """A probability as people read it."""
    return f"{100 * probability:.2g} %" if probability < 0.01 else f"{100 * probability:.1f} %"


def _kind(move: MoveReport, change: float) -> Kind | None:
    rare = move.probability <= FEW_FIND
    if move.chances is None and not rare:
        return None
    if change <= -MISTAKE and move.mark != "trap":
        return "missed" if move.best_probability >= MOST_PLAY else "mistake"
    if move.chances is None:
        return "surprise" if change >= MISTAKE else None
    return "gem" if move.mark == "gem" else "trap" if move.mark == "trap" else None


def _moment(move: MoveReport, kind: Kind, change: float) -> Moment:
    board, points = move.position.board, f"{abs(100 * change):.0f} points"
    played, best = move.position.sans([move.move, move.best])
    if kind == "gem":
        effect = "holds"
    elif move.chances is not None:
        effect = f"loses {points}"
    else:
        effect = f"{'raises' if change > 0 else 'lowers'} the forecast by {points}"
    likely = f"{percent(move.best_probability)} would play {best}"
    others = likely if kind == "missed" else f"{percent(move.probability)} would play it"
    text = f"{board.fullmove_number}{'.' if board.turn else '...'} {played} {effect}, and {others}"
    return Moment(move.ply, kind, change, text, move.best if kind == "missed" else None)
