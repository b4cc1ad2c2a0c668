"""The forecast of the result by one ply more: the network's values after the likeliest moves.

A network that does not search overlooks what the next move takes: its own value is that of the position as it looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import chess

from movemask.board.moves import moves_of
from movemask.board.position import Elo, Position
from movemask.errors import MovemaskError
from movemask.network.value import Value
from movemask.pipeline import Answer, Caller, Pipeline, Query

#: Moves that are looked at: each is one more position for the network.
LOOKED_AT = 3

#: Positions of one submission, so that a game's do not fill the queue.
_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class Outlook:
    """A position with the network's own value, the ratings that were asked for, and its likeliest moves with their
    probabilities at temperature 1."""

    position: Position
    value: Value | None
    elo: Elo | None
    moves: tuple[tuple[chess.Move, float], ...]

    @classmethod
    def of(cls, answer: Answer) -> Outlook:
        """The outlook from an answer."""
        moves: tuple[tuple[chess.Move, float], ...] = ()
        if answer.evaluated is not None:
            likeliest = moves_of(answer.policy[0][:LOOKED_AT])
            moves = tuple(zip(likeliest, answer.evaluated.policies.unshaped(answer.row), strict=False))
        return cls(answer.position, answer.value, answer.query.elo, moves)


async def forecasts(
    pipeline: Pipeline, outlooks: Sequence[Outlook], caller: Caller | None = None
) -> list[Value | MovemaskError | None]:
    """For each position the mean of the values after its moves, by their probability, for the side to move: after those
    that are not looked at, it is the network's own of the position. None where that has none, or the error of one. The
    network runs on the positions as on any other. Raises errors of the model and the queue."""
    found: list[list[tuple[Value, float]]] = [[] for _ in outlooks]
    failed: dict[int, MovemaskError] = {}
    queries, places = [], []
    for place, outlook in enumerate(outlooks):
        if outlook.value is None:
            continue
        found[place].append((outlook.value, 1 - sum(probability for _, probability in outlook.moves)))
        elo = None if outlook.elo is None else Elo(outlook.elo.opponent, outlook.elo.self)
        for move, probability in outlook.moves:
            position = outlook.position.after(move)
            end = value_after(position.board, None)
            if end is not None:
                found[place].append((end, probability))
            else:
                queries.append(Query(position=position, elo=elo))
                places.append((place, probability))
    for start in range(0, len(queries), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        values = await pipeline.submit(queries[part], lambda answer: answer.value, caller)
        for answer, (place, probability) in zip(values, places[part], strict=True):
            if isinstance(answer, MovemaskError):
                failed[place] = answer
            elif answer is not None:
                found[place].append((answer.flipped(), probability))
    return [failed.get(place) or _mean(values) for place, values in enumerate(found)]


def value_after(board: chess.Board, value: Value | None) -> Value | None:
    """The value of a move, for who made it, by the board after it and that board's own value."""
    if board.is_checkmate():
        return Value(1, 0, 0, 1)
    return Value(0, 1, 0, 0.5) if board.is_game_over() else value and value.flipped()


def _mean(values: Sequence[tuple[Value, float]]) -> Value | None:
    """The mean by weights that sum to 1; the score alone where one of the values is no more."""
    if not values:
        return None
    score = sum(value.score * weight for value, weight in values)
    if any(value.win is None for value, _ in values):
        return Value(None, None, None, score)
    win, draw, loss = (sum((value[part] or 0.0) * weight for value, weight in values) for part in range(3))
    return Value(win, draw, loss, score)
