"""How likely the moves of games are at several ratings, from which follows what rating a player's moves resemble."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from movemask.board.boards import PHASES, Boards, Phase, phases_of
from movemask.errors import MovemaskError
from movemask.evaluate import Evaluator
from movemask.games.reports import GameReport, MoveReport, probabilities_at
from movemask.policy.normalisation import Normalisation

#: The ratings, of both players alike.
RATINGS = tuple(range(800, 2401, 200))

#: The moves that are compared, by the plies before them: 7 to 36. Openings are known by heart, and late moves are few.
PLIES = range(12, 72)


def compared_moves(report: GameReport) -> list[MoveReport]:
    """The moves of a game whose probabilities are compared: those with an alternative and a slot."""
    return [
        move
        for move in report.moves
        if move.ply - 1 in PLIES and move.legal > 1 and move.probability is not None
    ]


def phases(report: GameReport) -> list[Phase]:
    """The phase of the game before each move."""
    boards = Boards.of([move.position.board for move in report.moves])
    return [PHASES[phase] for phase in phases_of(boards)]


async def compared(
    evaluator: Evaluator, reports: Sequence[GameReport | MovemaskError]
) -> list[GameReport | MovemaskError]:
    """The reports with the probabilities of their moves at RATINGS, by a network that takes ratings.

    If a move fails, its error takes the game's place. Raises errors of the model and the queue.
    """
    points = [
        (move, rating)
        for report in reports
        if isinstance(report, GameReport)
        for move in compared_moves(report)
        for rating in RATINGS
    ]
    values = iter(await probabilities_at(evaluator, points, Normalisation()))
    return [
        _with_ratings(report, values) if isinstance(report, GameReport) else report
        for report in reports
    ]


def _with_ratings(
    report: GameReport, values: Iterator[float | MovemaskError]
) -> GameReport | MovemaskError:
    at_ratings, failed = {}, None
    for move in compared_moves(report):
        row = [next(values) for _ in RATINGS]
        failed = failed or next((value for value in row if isinstance(value, MovemaskError)), None)
        at_ratings[move.ply] = tuple(value for value in row if not isinstance(value, MovemaskError))
    return failed or replace(report, at_ratings=at_ratings)
