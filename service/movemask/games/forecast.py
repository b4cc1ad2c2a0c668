"""Forecasts of the result one ply deeper: the network's values after the likeliest moves.

The network does not search, so its value of a position overlooks a capture by the next move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import chess

from movemask.board.moves import moves_of
from movemask.board.position import Elo, Position
from movemask.errors import MovemaskError
from movemask.evaluate import Answer, Evaluator, Query, submit_in_parts
from movemask.network.value import Value

#: Number of moves that are looked at. Each move is one more position for the network.
LOOKED_AT = 3


@dataclass(frozen=True, slots=True)
class Outlook:
    """A position, the network's value, the request's ratings, and the likeliest moves with their probabilities.

    The moves and their probabilities are those of plain softmax, whatever the request's rule.
    """

    position: Position
    value: Value | None
    elo: Elo | None
    moves: tuple[tuple[chess.Move, float], ...]

    @classmethod
    def of(cls, answer: Answer) -> Outlook:
        """The outlook from an answer."""
        codes, probabilities = answer.unshaped
        moves = tuple(zip(moves_of(codes[:LOOKED_AT]), probabilities, strict=False))
        return cls(answer.position, answer.value, answer.query.elo, moves)


async def forecasts(
    evaluator: Evaluator, outlooks: Sequence[Outlook]
) -> list[Value | MovemaskError | None]:
    """For each position, the probability-weighted mean of the values after its moves, for the side to move.

    Moves that are not looked at count with the position's own value. None for a network without a value; the first
    error if a position fails. Raises errors of the model and the queue.
    """
    weighted: list[list[tuple[Value, float]]] = [[] for _ in outlooks]
    failed: dict[int, MovemaskError] = {}
    queries, places = [], []
    for place, outlook in enumerate(outlooks):
        if outlook.value is None:
            continue
        weighted[place].append(
            (outlook.value, 1 - sum(probability for _, probability in outlook.moves))
        )
        elo = None if outlook.elo is None else Elo(outlook.elo.opponent, outlook.elo.self)
        for move, probability in outlook.moves:
            position = outlook.position.after(move)
            end = value_after(position.board, None)
            if end is not None:
                weighted[place].append((end, probability))
            else:
                queries.append(Query(position=position, elo=elo))
                places.append((place, probability))
    values = await submit_in_parts(evaluator, queries, lambda answer, _: answer.value)
    for value, (place, probability) in zip(values, places, strict=True):
        if isinstance(value, MovemaskError):
            failed[place] = value
        elif value is not None:
            weighted[place].append((value.flipped(), probability))
    return [failed.get(place) or _mean(values) for place, values in enumerate(weighted)]


def value_after(board: chess.Board, value: Value | None) -> Value | None:
    """The value of a move for its player, from the board after the move and the network's value of that board."""
    if board.is_checkmate():
        return Value(1, 0, 0, 1)
    return Value(0, 1, 0, 0.5) if board.is_game_over() else value and value.flipped()


def _mean(values: Sequence[tuple[Value, float]]) -> Value | None:
    """The mean by weights that sum to 1; None without values. If a value has only a score, so has the mean."""
    if not values:
        return None
    score = sum(value.score * weight for value, weight in values)
    if any(value.win is None for value, _ in values):
        return Value(None, None, None, score)
    win, draw, loss = (
        sum((value[result] or 0.0) * weight for value, weight in values) for result in range(3)
    )
    return Value(win, draw, loss, score)
