"""Draws by the laws of chess where there are legal moves: those that end the game, and those that can be claimed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import chess
import numpy as np

from movemask.board.boards import Boards, Flags
from movemask.board.line import SamePosition
from movemask.board.position import Position

_DARK, _LIGHT = np.uint64(chess.BB_DARK_SQUARES), np.uint64(chess.BB_LIGHT_SQUARES)


class Draw(Enum):
    """Why, the weightiest first: three that end the game, and two that the player to move may claim."""

    INSUFFICIENT_MATERIAL = "insufficient_material"
    SEVENTYFIVE_MOVES = "seventyfive_moves"
    FIVEFOLD_REPETITION = "fivefold_repetition"
    FIFTY_MOVES = "fifty_moves"
    THREEFOLD_REPETITION = "threefold_repetition"

    @property
    def claimable(self) -> bool:
        """Whether the game goes on unless the draw is claimed."""
        return self in (Draw.FIFTY_MOVES, Draw.THREEFOLD_REPETITION)


def draws_of(boards: Boards, positions: Sequence[Position]) -> list[Draw | None]:
    """The draw of each position with a legal move; None where there is none.

    Claims are for the position on the board, not for one that a move would lead to. Repetitions are those of the
    known game.
    """
    found: list[Draw | None] = [None] * len(boards)
    for draw, holds in (
        (Draw.FIFTY_MOVES, boards.clock >= 100),
        (Draw.SEVENTYFIVE_MOVES, boards.clock >= 150),
        (Draw.INSUFFICIENT_MATERIAL, _insufficient(boards)),
    ):
        for row in np.flatnonzero(holds).tolist():
            found[row] = draw
    weight = list(Draw)
    for row, position in enumerate(positions):
        count = position.occurrences(SamePosition.BY_LAWS) if position.has_history else 1
        if count >= 3:
            repeated = Draw.FIVEFOLD_REPETITION if count >= 5 else Draw.THREEFOLD_REPETITION
            before = found[row]
            found[row] = repeated if before is None else min(before, repeated, key=weight.index)
    return found


def _insufficient(boards: Boards) -> Flags:
    """Where neither side can mate by any moves, as python-chess's `is_insufficient_material` says."""
    pawns, knights, bishops, rooks, queens, _ = boards.kinds
    bare = (pawns | rooks | queens) == 0
    lone_knight = np.bitwise_count(boards.ours | boards.theirs) == 3
    one_color = (bishops & _DARK == 0) | (bishops & _LIGHT == 0)
    return np.asarray(bare & np.where(knights != 0, lone_knight, one_color))
