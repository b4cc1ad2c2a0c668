"""How long a human would think about a move: a rule with its parameters in one place.

It is not fitted: no games with the clock after each move were at hand. People think longer about positions where many
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


@dataclass(frozen=True, slots=True)
class ThinkRule:
    """The parameters of `think_time`."""

    game_moves: int = 45  # so many moves the time is divided among, less those that were made
    least_moves: int = 15  # that are still to come, however long the game is
    of_increment: float = 0.9
    certain: float = 0.25  # weight of a move that everybody plays,
    by_entropy: float = 0.6  # and what a nat of entropy adds; 1.25 nats are usual
    opening_moves: int = 8
    in_opening: float = 0.4
    endgame_pieces: int = 6  # pieces of both sides apart from kings and pawns
    in_endgame: float = 0.8
    on_recapture: float = 0.4
    on_only_move: float = 0.15
    most: float = 0.2  # of what is left
    reserve: float = 1.0  # seconds kept back: machines and networks stall


RULE = ThinkRule()


def think_time(
    position: Position, move: chess.Move, probabilities: Iterable[float], clock: Clock, rule: ThinkRule = RULE
) -> float:
    """Seconds that a human would think before `move`, at most a fifth of the time left beyond a second.

    probabilities : of the legal moves, at temperature 1
    """
    board = position.board
    left = max(0.0, clock.remaining - rule.reserve)
    to_come = max(rule.least_moves, rule.game_moves - board.fullmove_number)
    if clock.moves_to_go:
        to_come = min(to_come, clock.moves_to_go + 1)
    policy = [p for p in probabilities if p > 0]
    weight = rule.certain + rule.by_entropy * -sum(p * math.log(p) for p in policy)
    pieces = board.occupied & ~board.pawns & ~board.kings
    if board.fullmove_number <= rule.opening_moves:
        weight *= rule.in_opening
    elif pieces.bit_count() <= rule.endgame_pieces:
        weight *= rule.in_endgame
    if len(policy) == 1:
        weight *= rule.on_only_move
    elif _recaptures(position, move):
        weight *= rule.on_recapture
    seconds = weight * (left / to_come + rule.of_increment * clock.increment)
    return min(seconds, rule.most * left)


def _recaptures(position: Position, move: chess.Move) -> bool:
    """Whether the move takes the piece that has just taken one."""
    known = [one.board for one in position.history(2)]
    if len(known) < 2 or not position.board.is_capture(move):
        return False
    after, before = known
    taken = before.occupied_co[after.turn] & ~after.occupied_co[after.turn]
    return bool(taken & chess.BB_SQUARES[move.to_square])
