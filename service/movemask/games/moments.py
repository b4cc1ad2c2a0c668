"""The most telling moves of a game: what lost most, likely moves that were not found, rare ones that worked. By the
PGN's evaluations, and where a move has none, by the network's forecasts before and after it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import starmap, zip_longest
from typing import Literal

from movemask.games.forecast import value_after
from movemask.games.reports import FEW_FIND, MISTAKE, MOST_PLAY, GameReport, MoveReport

Kind = Literal["trap", "missed", "mistake", "gem", "surprise"]

#: Moments of a game, at most; and nats of surprise by which a rare move that works tells as much as a lost game.
_MOST, _NATS = 5, 10


@dataclass(frozen=True, slots=True)
class Moment:
    """A telling move; `MomentOut` of the API says what each kind means."""

    ply: int  # from 1
    kind: Kind
    change: float  # of the mover's expected score, -1 to 1
    best: str | None  # the likely move that was `missed`, in UCI
    text: str  # all of it in words


def moments_of(report: GameReport) -> list[Moment]:
    """At most five moments of a game, the most telling first. Forecasts are used where the report has them: `unclear`
    says which are needed."""
    found = filter(None, starmap(_moment, zip_longest(report.moves, report.moves[1:])))
    rare = [min(move.surprise / _NATS, 1) for move in report.moves]
    weight = {one: -one.change if one.change <= -MISTAKE else rare[one.ply - 1] for one in found}
    return sorted(weight, key=weight.__getitem__, reverse=True)[:_MOST]


def unclear(report: GameReport, place: int) -> bool:
    """Whether a moment or glyph depends on the forecast before a move: that of this move, or of the one before it."""
    return any(map(_rare, report.moves[max(0, place - 1) : place + 1]))


def forecast_change(move: MoveReport, following: MoveReport | None) -> float | None:
    """What a rare move without evaluations changes of its mover's expected score, by the forecasts before and after."""
    if move.forecast is None or not _rare(move):
        return None
    position = following.position if following else move.position.after(move.move)
    after = value_after(position.board, following.forecast if following else None)
    return None if after is None else after.score - move.forecast.score


def percent(probability: float) -> str:
    """A probability as people read it."""
    return f"{100 * probability:.2g} %" if probability < 0.01 else f"{100 * probability:.1f} %"


def _rare(move: MoveReport) -> bool:
    return move.chances is None and move.legal > 1 and move.probability <= FEW_FIND


def _moment(move: MoveReport, following: MoveReport | None) -> Moment | None:
    change = move.chances[1] - move.chances[0] if move.chances else forecast_change(move, following)
    kind: Kind | None = move.mark
    if change is not None and move.chances is None and abs(change) >= MISTAKE:
        kind = "mistake" if change < 0 else "surprise"
    if change is None or kind is None or move.legal == 1:
        return None
    effect = "loses" if move.chances else "raises the forecast by" if change > 0 else "lowers the forecast by"
    effect = "holds" if kind == "gem" else f"{effect} {abs(100 * change):.0f} points"
    board, best, others = move.position.board, None, f"{percent(move.probability)} would play it"
    if kind == "mistake" and move.best_probability >= MOST_PLAY:
        kind, best = "missed", move.best.uci()
        others = f"{percent(move.best_probability)} would play {move.position.sans([move.best])[0]}"
    return Moment(move.ply, kind, change, best, f"{board.variation_san([move.move])} {effect}, and {others}")
