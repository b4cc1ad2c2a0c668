"""How long a human would think about a move.

The time is a share of the clock, multiplied by weights. People think longer about positions in which many moves are
played (the entropy of the policy), and hardly at all about a recapture, an only move or a known opening. Ratings count
through the policy. It is a rule of thumb: no games with clock times were available to fit it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import chess

from movemask.board.position import Position

#: Most seconds on a clock: a week, as in correspondence chess.
LONGEST = 7 * 86_400


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of the player to move. Times are in seconds.

    remaining, increment : time left, and time added after each move
    moves_to_go : moves until the next time control, if there is one
    overhead : time that each move loses between the player and the clock
    """

    remaining: float
    increment: float = 0.0
    moves_to_go: int | None = None
    overhead: float = 0.0


# The share of the clock: seconds left / moves to come + INCREMENT_SHARE * increment.
GAME_MOVES = 45  # expected moves of a game; moves to come are these less the moves made
LEAST_MOVES = 15  # fewest moves to come, however long the game has lasted
INCREMENT_SHARE = 0.9

# Weights of the share.
CERTAIN = 0.25  # weight without entropy: everybody plays the same move
PER_NAT = 0.6  # added for each nat of entropy; 1.25 nats are usual
OPENING_MOVES = 8
IN_OPENING = 0.4
ENDGAME_PIECES = 6  # most pieces of both sides in an endgame, without kings and pawns
IN_ENDGAME = 0.8
ON_RECAPTURE = 0.4
ON_ONLY_MOVE = 0.15

# Bounds.
LARGEST_SHARE = 0.2  # of the seconds left
RESERVE = 1.0  # seconds that are never used, because machines and networks stall


def think_time(
    position: Position, move: chess.Move, probabilities: Iterable[float], clock: Clock
) -> float:
    """Seconds that a human would think before `move`: at most a fifth of the time left, without the last second.

    probabilities : of the legal moves, at temperature 1

    The overhead is subtracted, so that the move takes the human's time on the clock.
    """
    board = position.board
    left = max(0.0, clock.remaining - RESERVE - clock.overhead)
    to_come = max(LEAST_MOVES, GAME_MOVES - board.fullmove_number)
    if clock.moves_to_go:
        to_come = min(to_come, clock.moves_to_go + 1)
    policy = [p for p in probabilities if p > 0]
    weight = CERTAIN + PER_NAT * -sum(p * math.log(p) for p in policy)
    pieces = board.occupied & ~board.pawns & ~board.kings
    if board.fullmove_number <= OPENING_MOVES:
        weight *= IN_OPENING
    elif pieces.bit_count() <= ENDGAME_PIECES:
        weight *= IN_ENDGAME
    if len(policy) == 1:
        weight *= ON_ONLY_MOVE
    elif _recaptures(position, move):
        weight *= ON_RECAPTURE
    seconds = weight * (left / to_come + INCREMENT_SHARE * clock.increment)
    return max(0.0, min(seconds, LARGEST_SHARE * left) - clock.overhead)


def _recaptures(position: Position, move: chess.Move) -> bool:
    """Whether the move takes the piece that has just captured."""
    boards = [entry.board for entry in position.history(2)]
    if len(boards) < 2 or not position.board.is_capture(move):
        return False
    after, before = boards
    lost = before.occupied_co[after.turn] & ~after.occupied_co[after.turn]
    return bool(lost & chess.BB_SQUARES[move.to_square])
