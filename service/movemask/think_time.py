"""How long a human would think about a move: a rule with its parameters in one place.

It is not fitted: we had no games with the clock after each move. People think longer about positions where many
moves are played, which is what a policy's entropy says, and hardly about a recapture, an only move or an opening that
they know. The network's ratings have their say through its policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import chess

from movemask.board.position import Position

#: Seconds on a clock at most: a week, as in correspondence chess.
LONGEST = 7 * 86_400


@dataclass(frozen=True, slots=True)
class Clock:
    """What the player to move has: seconds left, seconds gained by each move, and moves until more time, if any."""

    remaining: float
    increment: float = 0.0
    moves_to_go: int | None = None


# The parameters of the rule.
GAME_MOVES = 45  # so many moves the time is divided among, less those that were made
LEAST_MOVES = 15  # that are still to come, however long the game is
OF_INCREMENT = 0.9
CERTAIN = 0.25  # weight of a move that everybody plays,
BY_ENTROPY = 0.6  # and what a nat of entropy adds; 1.25 nats are usual
OPENING_MOVES = 8
IN_OPENING = 0.4
ENDGAME_PIECES = 6  # pieces of both sides apart from kings and pawns
IN_ENDGAME = 0.8
ON_RECAPTURE = 0.4
ON_ONLY_MOVE = 0.15
MOST = 0.2  # of what is left
RESERVE = 1.0  # seconds kept back: machines and networks stall


def think_time(position: Position, move: chess.Move, probabilities: Iterable[float], clock: Clock) -> float:
    """Seconds that a human would think before `move`, at most a fifth of the time left beyond a second.

    probabilities : of the legal moves, at temperature 1
    """
    board = position.board
    left = max(0.0, clock.remaining - RESERVE)
    to_come = max(LEAST_MOVES, GAME_MOVES - board.fullmove_number)
    if clock.moves_to_go:
        to_come = min(to_come, clock.moves_to_go + 1)
    policy = [p for p in probabilities if p > 0]
    weight = CERTAIN + BY_ENTROPY * -sum(p * math.log(p) for p in policy)
    pieces = board.occupied & ~board.pawns & ~board.kings
    if board.fullmove_number <= OPENING_MOVES:
        weight *= IN_OPENING
    elif pieces.bit_count() <= ENDGAME_PIECES:
        weight *= IN_ENDGAME
    if len(policy) == 1:
        weight *= ON_ONLY_MOVE
    elif _recaptures(position, move):
        weight *= ON_RECAPTURE
    seconds = weight * (left / to_come + OF_INCREMENT * clock.increment)
    return min(seconds, MOST * left)


def _recaptures(position: Position, move: chess.Move) -> bool:
    """Whether the move takes the piece that has just taken one."""
    known = [one.board for one in position.history(2)]
    if len(known) < 2 or not position.board.is_capture(move):
        return False
    after, before = known
    taken = before.occupied_co[after.turn] & ~after.occupied_co[after.turn]
    return bool(taken & chess.BB_SQUARES[move.to_square])
