"""The cause of each illegal slot: why its move cannot be played. If several causes apply, the first in `Cause` counts.

A slot is judged by its own squares, not by the move that python-chess would read from them. In a vocabulary that writes
castling as e1h1, the slot e1g1 is a king that moves two squares: `wrong_geometry`, whether castling is legal or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cache

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import (
    BETWEEN,
    BISHOP_LINES,
    BIT,
    KING,
    KNIGHT,
    PAWN_UP,
    ROOK_LINES,
    Bits,
    Boards,
    Squares,
)
from movemask.encoding.vocabulary import (
    Castling,
    Vocabulary,
    castling_forms,
    codes_of_written,
    promotes,
)


class Cause(Enum):
    """Why a slot is illegal in a position."""

    IMPOSSIBLE_SLOT = "impossible_slot"  # no move of any piece in any position
    EMPTY_SQUARE = "empty_square"  # no piece on the from-square
    ENEMY_PIECE = "enemy_piece"  # an opponent's piece on the from-square
    CASTLING_RIGHT = "castling_right"  # castling without the right to it
    CASTLING_PATH = "castling_path"  # with the right to castle, but the way is occupied or attacked
    EN_PASSANT = "en_passant"  # the pawn to take did not just advance two squares
    WRONG_GEOMETRY = "wrong_geometry"  # the piece does not move like that even on an empty board
    BLOCKED = "blocked"  # it passes over a piece, or pushes a pawn onto an opponent's
    OWN_PIECE_ON_TARGET = "own_piece_on_target"
    LEAVES_KING_IN_CHECK = "leaves_king_in_check"
    PROMOTION_FORM = "promotion_form"  # only the promotion piece is wrong: missing, superfluous, or another slot's


#: Every cause, in order of precedence.
CAUSES = tuple(Cause)

_NONE = -1


class Written:
    """K moves by their squares, legal or not, with the boards of their positions.

    Parameters
    ----------
    boards : the positions
    rows : index in `boards` of each move's position `[K]`
    source, target, promotion : squares from the point of view of the side to move, promotion piece or 0, intp `[K]`
    takes_rook : bool `[K]`, whether castling is written as king takes rook
    """

    def __init__(
        self,
        boards: Boards,
        rows: Squares,
        source: Squares,
        target: Squares,
        promotion: Squares,
        takes_rook: NDArray[np.bool_],
    ) -> None:
        self._boards = boards
        self.rows, self.source, self.target, self.promotion = rows, source, target, promotion
        self.source_bit, self.target_bit = BIT[source], BIT[target]
        (
            self.pawns,
            self.knights,
            self.bishops,
            self.rooks,
            self.queens,
            self.kings,
            self.ours,
            self.theirs,
            *_,
        ) = (bits := boards.bits[:, rows])
        self.en_passant = bits[9]
        self.black = boards.black[rows]
        self.occupied: Bits = self.ours | self.theirs
        self.is_pawn = self.pawns & self.source_bit != 0
        self.castles, self.may_castle = castling_forms(source, target, rows, boards, takes_rook)

    @classmethod
    def of_slots(
        cls, boards: Boards, rows: Squares, slots: Squares, vocabulary: Vocabulary
    ) -> Written:
        """Returns the moves of slots `[K]` in the positions `rows` `[K]`. A slot without a move gives a square to
        itself."""
        source, target, promotion = vocabulary.columns[:, slots]
        turned = np.where(boards.black[rows], vocabulary.flip.value ^ 56, 0)
        takes_rook = np.full(len(rows), vocabulary.castling is Castling.KING_TAKES_ROOK)
        return cls(boards, rows, source ^ turned, target ^ turned, promotion, takes_rook)

    def codes(self, bare_promotion: chess.PieceType | None) -> Squares:
        """Returns the moves' codes (`board.moves`). `bare_promotion` is the piece of a promotion without a letter.

        Castling keeps the squares of its slot: in a vocabulary that writes e1h1, e1g1 is another slot.
        """
        return codes_of_written(
            self.source, self.target, self.promotion, self.rows, self._boards, bare_promotion
        )


def causes_of(written: Written, legal: Sequence[Squares]) -> Squares:
    """Returns the cause of each move `[K]`, as an index into CAUSES. Raises ValueError for a legal move.

    `legal` holds each position's legal moves `[L]` (`board.moves`).
    """
    source, target, promotion = written.source, written.target, written.promotion
    obstacle = np.full(len(source), _NONE)
    for pawns, obstacle_of in ((True, _pawn_obstacle), (False, _piece_obstacle)):
        if (written.is_pawn == pawns).any():
            obstacle = np.where(written.is_pawn == pawns, obstacle_of(written), obstacle)
    causes = _first(
        (~_possible(source, target, promotion), _index(Cause.IMPOSSIBLE_SLOT)),
        (written.occupied & written.source_bit == 0, _index(Cause.EMPTY_SQUARE)),
        (written.ours & written.source_bit == 0, _index(Cause.ENEMY_PIECE)),
        (written.castles & ~written.may_castle, _index(Cause.CASTLING_RIGHT)),
        (written.castles, _index(Cause.CASTLING_PATH)),
        (obstacle != _NONE, obstacle),
    )
    for index in np.flatnonzero(causes == _NONE).tolist():
        # No obstacle: either the king would be in check, or only the promotion piece is wrong.
        turned = 56 if written.black[index] else 0
        squares = (int(source[index]) ^ turned) << 6 | int(target[index]) ^ turned
        if not (legal[written.rows[index]] & 0xFFF == squares).any():
            causes[index] = _index(Cause.LEAVES_KING_IN_CHECK)
        elif promotion[index] or (written.is_pawn[index] and target[index] >= 56):
            causes[index] = _index(Cause.PROMOTION_FORM)
        else:
            move = chess.square_name(squares >> 6) + chess.square_name(squares & 63)
            raise ValueError(f"{move} can be played")
    return causes


@cache
def _index(cause: Cause) -> int:
    return CAUSES.index(cause)


def _possible(source: Squares, target: Squares, promotion: Squares) -> NDArray[np.bool_]:
    """Returns whether any piece of either side could make the move in any position."""
    reached = (ROOK_LINES[source] | BISHOP_LINES[source] | KNIGHT[source]) & BIT[target] != 0
    return np.asarray(reached & ((promotion == 0) | promotes(source, target)))


def _piece_obstacle(written: Written) -> Squares:
    """Returns the cause that stops a piece other than a pawn; _NONE if only the king's safety could stop it."""
    source, source_bit, target_bit = written.source, written.source_bit, written.target_bit
    reach = np.where(
        (written.rooks | written.queens) & source_bit != 0, ROOK_LINES[source], np.uint64(0)
    )
    reach |= np.where(
        (written.bishops | written.queens) & source_bit != 0, BISHOP_LINES[source], np.uint64(0)
    )
    reach |= np.where(written.knights & source_bit != 0, KNIGHT[source], np.uint64(0))
    reach |= np.where(written.kings & source_bit != 0, KING[source], np.uint64(0))
    return _first(
        (reach & target_bit == 0, _index(Cause.WRONG_GEOMETRY)),
        (BETWEEN[source, written.target] & written.occupied != 0, _index(Cause.BLOCKED)),
        (written.ours & target_bit != 0, _index(Cause.OWN_PIECE_ON_TARGET)),
    )


def _pawn_obstacle(written: Written) -> Squares:
    """Returns the cause that stops a pawn; _NONE if only the king's safety or the promotion piece could stop it."""
    source, target, target_bit = written.source, written.target, written.target_bit
    double = (target == source + 16) & (source >> 3 == 1)
    push = (target == source + 8) | double
    passed = np.where(double, BIT[np.minimum(source + 8, 63)], np.uint64(0))
    captures = PAWN_UP[source] & target_bit != 0
    victim = (written.occupied | written.en_passant) & target_bit != 0
    beside = BIT[(source & 56) | (target & 7)]
    expired = (source >> 3 == 4) & (written.pawns & written.theirs & beside != 0)
    in_the_way = (written.occupied & passed) | (written.theirs & target_bit)
    return _first(
        (captures & ~victim & expired, _index(Cause.EN_PASSANT)),
        (~push & ~(captures & victim), _index(Cause.WRONG_GEOMETRY)),
        (push & (in_the_way != 0), _index(Cause.BLOCKED)),
        (written.ours & target_bit != 0, _index(Cause.OWN_PIECE_ON_TARGET)),
    )


def _first(*choices: tuple[NDArray[np.bool_], int | Squares]) -> Squares:
    """Returns the cause of the first condition that holds for each move, or _NONE. `np.select` takes three times as
    long."""
    causes = np.full(len(choices[0][0]), _NONE)
    for condition, cause in reversed(choices):
        np.copyto(causes, cause, where=condition)
    return causes
