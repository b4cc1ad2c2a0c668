"""Writes what a network finds of games into their PGN: comments, glyphs and a summary; all that was there stays."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import islice

import chess.pgn

from movemask.board.pgn import Lines, read_trees
from movemask.errors import MovemaskError
from movemask.pipeline import Pipeline
from movemask.tasks.games import GameReport, MoveReport, SideReport, reports_of

#: Games that are read and evaluated together.
_AT_ONCE = 16

#: Games whose surprise is plotted in one picture.
MOST_PLOTTED = 8

#: Comments of an earlier run, which a new one replaces.
_OURS = re.compile(
    r"\s*P [\d.]+ % \((?:only|first|\d+\w\w of)[^)]*\)(?:, surprise [\d.]+)?|\s*movemask: [^{}]*? nats\."
)

_JUDGED = frozenset(range(1, 7))  # $1 to $6: a move has one glyph of quality at most


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Which moves get a glyph. The expected score is the network's, for the mover, 0 to 1.

    find : `!` for a move of at most this probability after which the mover's expected score is not lower
    make : `?!` for a move of at most this probability after which it is lower by `fall` or more; `!?` for a network
        without a value
    """

    find: float = 0.1
    make: float = 0.02
    fall: float = 0.1

    def __str__(self) -> str:
        return (
            f"! at most {self.find:.0%} and the expected score does not fall, "
            f"?! at most {self.make:.0%} and it falls by {self.fall:g}"
        )


@dataclass(frozen=True, slots=True)
class Annotated:
    """A game with comments, and the report on it or why there is none; `tree` is None if it could not be read."""

    tree: chess.pgn.Game | None
    report: GameReport | MovemaskError

    def __str__(self) -> str:
        if self.tree is None:
            return f"{{ movemask: {str(self.report).replace('}', ')')} }} *"
        return self.tree.accept(chess.pgn.StringExporter(columns=80))


async def annotated(
    pipeline: Pipeline,
    pgn: Lines,
    temperature: float = 1.0,
    *,
    elo: tuple[float, float] | None = None,
    thresholds: Thresholds = Thresholds(),
    max_positions: int | None = None,
) -> AsyncIterator[Annotated]:
    """The games of a PGN, annotated, a few read at a time. Raises LimitExceeded, and errors of model and queue."""
    trees = read_trees(pgn, max_positions)
    name = pipeline.model.name
    while part := await asyncio.to_thread(list, islice(trees, _AT_ONCE)):
        reports = await reports_of(pipeline, [game for _, game in part], temperature, elo)
        for (tree, _), report in zip(part, reports, strict=True):
            if tree is not None:
                await asyncio.to_thread(annotate, tree, report, name, thresholds)
            yield Annotated(tree, report)


def annotate(tree: chess.pgn.Game, report: GameReport | MovemaskError, model: str, thresholds: Thresholds) -> None:
    """Adds comments and glyphs to the main line of a game; only the reason to one that could not be judged."""
    if isinstance(report, MovemaskError):
        tree.comment = _joined(tree.comment, f"movemask: {report}")
        return
    sides = ((name, side) for name, side in (("White", report.white), ("Black", report.black)) if side is not None)
    summary = "; ".join(f"{name} {_summary(side)}" for name, side in sides)
    tree.comment = _joined(tree.comment, f"movemask: {model}; {thresholds}; {summary}, surprise in nats.")
    nodes = list(tree.mainline())
    for place, (node, move) in enumerate(zip(nodes, report.moves, strict=True)):
        node.comment = _joined(node.comment, _comment(move))
        glyph = _glyph(move, report.moves[place + 1] if place + 1 < len(nodes) else None, thresholds)
        if glyph is not None and not node.nags & _JUDGED:
            node.nags.add(glyph)


class Players:
    """The moves of each player over many games; means are over moves."""

    def __init__(self) -> None:
        self._sides: dict[str, SideReport] = {}

    def add(self, report: GameReport) -> None:
        """Takes the moves of a game."""
        for colour, side in (("White", report.white), ("Black", report.black)):
            if side is not None:
                name = report.game.headers.get(colour, "?")
                before = self._sides.get(name)
                self._sides[name] = side if before is None else SideReport.together([before, side])

    def sides(self) -> dict[str, SideReport]:
        """The players by name."""
        return dict(sorted(self._sides.items()))


def _joined(there: str, ours: str) -> str:
    """A comment with ours in place of that of an earlier run."""
    return " ".join(filter(None, [_OURS.sub("", there).strip(), ours]))


def _comment(move: MoveReport) -> str:
    if move.legal == 1:
        return "P 100 % (only move)"
    share = f"P {100 * move.probability:.2g} %" if move.probability < 0.01 else f"P {100 * move.probability:.1f} %"
    first = f"; {move.position.board.san(move.best)} {100 * move.best_probability:.1f} %" if move.rank > 1 else ""
    place = f"{_ordinal(move.rank)} of {move.legal}" if move.rank > 1 else "first choice"
    return f"{share} ({place}{first}), surprise {move.surprise:.2f}"


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _glyph(move: MoveReport, following: MoveReport | None, thresholds: Thresholds) -> int | None:
    """The NAG of a move; None for most."""
    if move.legal == 1 or move.probability > max(thresholds.find, thresholds.make):
        return None
    if move.value is None:
        return chess.pgn.NAG_SPECULATIVE_MOVE if move.probability <= thresholds.make else None
    after = _score_after(move, following)
    if after is None:
        return None
    gain = after - _score(move.value)
    if move.probability <= thresholds.find and gain >= 0:
        return chess.pgn.NAG_GOOD_MOVE
    if move.probability <= thresholds.make and -gain >= thresholds.fall:
        return chess.pgn.NAG_DUBIOUS_MOVE
    return None


def _score_after(move: MoveReport, following: MoveReport | None) -> float | None:
    """The mover's expected score after the move; None after the last move of a game that is not over."""
    if following is not None:
        return None if following.value is None else 1 - _score(following.value)
    board = move.position.board.copy()
    board.push(move.move)
    return 1.0 if board.is_checkmate() else 0.5 if board.is_game_over() else None


def _score(value: tuple[float, ...]) -> float:
    return value[0] if len(value) == 1 else value[0] + value[1] / 2


def _summary(side: SideReport) -> str:
    return f"{side.moves} moves, mean surprise {side.cross_entropy:.2f}, first choice {100 * side.top1:.0f} %"
