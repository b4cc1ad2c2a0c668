"""Draws by the laws of chess where there are legal moves: those that end the game, and those that can be claimed."""

from __future__ import annotations

from enum import Enum

from movemask.board.line import SamePosition
from movemask.board.position import Position


class Draw(Enum):
    """Why a game is drawn, by precedence: three end the game, the last two may be claimed by the player to move."""

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
    """The draw that a position with a legal move is, or None.

    Claims are for the position on the board, not for one that a move would lead to. Repetitions are counted in
    the known game.
    """
    board = position.board
    count = position.occurrences(SamePosition.BY_LAWS) if position.has_history else 1
    # Most positions have a pawn, rook or queen, and this is run for each: so that is looked at first.
    material = not (board.pawns or board.rooks or board.queens) and board.is_insufficient_material()
    for draw, holds in (
        (Draw.INSUFFICIENT_MATERIAL, material),
        (Draw.SEVENTYFIVE_MOVES, board.halfmove_clock >= 150),
        (Draw.FIVEFOLD_REPETITION, count >= 5),
        (Draw.FIFTY_MOVES, board.halfmove_clock >= 100),
        (Draw.THREEFOLD_REPETITION, count >= 3),
    ):
        if holds:
            return draw
    return None
