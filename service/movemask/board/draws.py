"""Draws by the laws of chess where there are legal moves: those that end the game, and those that can be claimed."""

from __future__ import annotations

from enum import Enum

from movemask.board.line import SamePosition
from movemask.board.position import Position


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


def draw_of(position: Position) -> Draw | None:
    """The draw of a position with a legal move; None where there is none.

    Claims are for the position on the board, not for one that a move would lead to. Repetitions are those of the
    known game.
    """
    board = position.board
    repeated = position.occurrences(SamePosition.BY_LAWS) if position.has_history else 1
    for draw, holds in (
        (Draw.INSUFFICIENT_MATERIAL, not (board.pawns or board.rooks or board.queens)),
        (Draw.SEVENTYFIVE_MOVES, board.halfmove_clock >= 150),
        (Draw.FIVEFOLD_REPETITION, repeated >= 5),
        (Draw.FIFTY_MOVES, board.halfmove_clock >= 100),
        (Draw.THREEFOLD_REPETITION, repeated >= 3),
    ):
        if holds and (draw is not Draw.INSUFFICIENT_MATERIAL or board.is_insufficient_material()):
            return draw
    return None
