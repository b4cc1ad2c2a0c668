"""A game in two sentences: how accurate both sides were, and what decided it."""

from __future__ import annotations

import chess

from movemask.games.accuracy import accuracies
from movemask.games.reports import GameReport, percent

_SIDES = {chess.WHITE: "White", chess.BLACK: "Black"}

#: How the mover stood before a move, by the least expected score.
_STANDINGS = (
    (0.95, "winning"),
    (0.65, "better"),
    (0.35, "level"),
    (0.05, "worse"),
    (0.0, "losing"),
)


def summary_of(report: GameReport) -> str | None:
    """The sentences; None unless every move has a cost."""
    by_side = {side: value for side, value in accuracies(report.costs).items() if value is not None}
    if not by_side:
        return None
    played = ", ".join(f"{_SIDES[side]} {value:.0f}\u00a0%" for side, value in by_side.items())
    return f"Accuracy by lichess's formula: {played}. {_turning(report)}"


def _turning(report: GameReport) -> str:
    """The costliest move, and who plays it."""
    costs = list(report.costs)
    ply = max(range(len(costs)), key=lambda place: costs[place].lost or 0.0)
    move, cost = report.moves[ply], costs[ply]
    if not cost.points:
        return "No move cost a point."
    board = move.position.board
    score = report.costs.score(ply)
    who = ""
    if move.probability is not None:
        rated = "" if move.elo is None else f" rated {move.elo.self:.0f}"
        who = f", and {percent(move.probability)} of players{rated} play it"
    stood = ""
    if score is not None:
        own = score if board.turn == chess.WHITE else 1 - score
        stood = f" when {_SIDES[board.turn]} was {next(word for least, word in _STANDINGS if own >= least)}"
    cost_words = f"{cost.points} point{'' if cost.points == 1 else 's'}"
    return f"{board.variation_san([move.move])} cost most, {cost_words}{stood}{who}."
