"""Why slots cannot be played: one cause for each illegal slot, the first in the order of `Cause` that applies.

A slot is judged by the squares it stands for, not by the move that python-chess would make of them: in a vocabulary
that writes castling as e1h1, the slot e1g1 is a king that moves two squares, `wrong_geometry`, castling allowed or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cache

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.attacks import BETWEEN, BISHOP_LINES, BIT, KING, KNIGHT, PAWN_UP, ROOK_LINES, Bits, Squares
from movemask.board.boards import Boards
from movemask.vocabulary import forms
from movemask.vocabulary.forms import Castling
from movemask.vocabulary.vocabulary import Vocabulary


class Cause(Enum):
    """Why a slot is illegal in a position."""

    IMPOSSIBLE_SLOT = "impossible_slot"  # no move of any piece in any position
    EMPTY_SQUARE = "empty_square"  # nothing stands on the from-square
    ENEMY_PIECE = "enemy_piece"  # what stands there is the opponent's
    WRONG_GEOMETRY = "wrong_geometry"  # the piece does not move like that, on an empty board either
    BLOCKED = "blocked"  # something stands in between, or before a pawn
    OWN_PIECE_ON_TARGET = "own_piece_on_target"
    LEAVES_KING_IN_CHECK = "leaves_king_in_check"
    CASTLING_RIGHT = "castling_right"  # castling without the right to it
    CASTLING_PATH = "castling_path"  # the right is there; the way is occupied, or the king's squares are attacked
    EN_PASSANT = "en_passant"  # a pawn beside the pawn it would take, which was not pushed just before
    PROMOTION_FORM = "promotion_form"  # right but for the promotion piece: missing, too many, or read from another slot


#: Every cause in order.
CAUSES = tuple(Cause)

_NONE = -1


class Written:
    """K moves as they are written, and what stands on the boards of their positions.

    Parameters
    ----------
    boards : the positions
    rows : the row of each move's position `[K]`
    source, target, promotion : its squares as the side to move sees them, its promotion piece or 0, intp `[K]`
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
        self.here, self.there = BIT[source], BIT[target]
        self.pawns, self.knights, self.bishops, self.rooks, self.queens, self.kings, self.ours, self.theirs, *_ = (
            own := boards.bits[:, rows]
        )
        self.en_passant = own[9]
        self.black = boards.black[rows]
        self.occupied: Bits = self.ours | self.theirs
        self.is_pawn = self.pawns & self.here != 0
        self.castles, self.may_castle = forms.castling_forms(source, target, rows, boards, takes_rook)

    @classmethod
    def of_slots(cls, boards: Boards, rows: Squares, slots: Squares, vocabulary: Vocabulary) -> Written:
        """What slots `[K]` stand for in the positions of `rows` `[K]`; from a square to itself for those of no move."""
        source, target, promotion = vocabulary.columns()[:, slots]
        turned = np.where(boards.black[rows], vocabulary.flip.value ^ 56, 0)
        takes_rook = np.full(len(rows), vocabulary.castling is Castling.KING_TAKES_ROOK)
        return cls(boards, rows, source ^ turned, target ^ turned, promotion, takes_rook)

    def codes(self, bare_promotion: chess.PieceType | None) -> Squares:
        """The moves by their own squares (`move_codes`), legal or not, with the piece that a promotion without a letter
        stands for. Castling keeps the squares of its slot: e1h1 in one vocabulary is not e1g1, which is a slot too."""
        return forms.codes_of_written(self.source, self.target, self.promotion, self.rows, self._boards, bare_promotion)


def causes_of(written: Written, legal: Sequence[Squares]) -> Squares:
    """The cause of each move `[K]`, by its place in CAUSES; `legal` are the legal moves `[L]` of each position
    (`move_codes`). ValueError for a move that can be played."""
    source, target, promotion = written.source, written.target, written.promotion
    obstacle = np.full(len(source), _NONE)
    for of_pawns, look in ((True, _pawn_obstacle), (False, _obstacle)):
        if (written.is_pawn == of_pawns).any():
            obstacle = np.where(written.is_pawn == of_pawns, look(written), obstacle)
    found = _first(
        (~_possible(source, target, promotion), _index(Cause.IMPOSSIBLE_SLOT)),
        (written.occupied & written.here == 0, _index(Cause.EMPTY_SQUARE)),
        (written.ours & written.here == 0, _index(Cause.ENEMY_PIECE)),
        (written.may_castle, _index(Cause.CASTLING_PATH)),
        (written.castles, _index(Cause.CASTLING_RIGHT)),
        (obstacle != _NONE, obstacle),
    )
    for place in np.flatnonzero(found == _NONE).tolist():
        # Nothing stands in its way: it is legal but for its promotion piece, or its king would be in check.
        turned = 56 if written.black[place] else 0
        squares = (int(source[place]) ^ turned) << 6 | int(target[place]) ^ turned
        if not (legal[written.rows[place]] & 0xFFF == squares).any():
            found[place] = _index(Cause.LEAVES_KING_IN_CHECK)
        elif promotion[place] or (written.is_pawn[place] and target[place] >= 56):
            found[place] = _index(Cause.PROMOTION_FORM)
        else:
            move = chess.square_name(squares >> 6) + chess.square_name(squares & 63)
            raise ValueError(f"{move} can be played")
    return found


@cache
def _index(cause: Cause) -> int:
    return CAUSES.index(cause)


def _possible(source: Squares, target: Squares, promotion: Squares) -> NDArray[np.bool_]:
    """Whether some piece of some side could make the move in some position."""
    reached = (ROOK_LINES[source] | BISHOP_LINES[source] | KNIGHT[source]) & BIT[target] != 0
    ranks = (source >> 3) * 8 + (target >> 3)
    last = (np.abs((source & 7) - (target & 7)) <= 1) & ((ranks == 6 * 8 + 7) | (ranks == 1 * 8))
    return np.asarray(reached & ((promotion == 0) | last))


def _obstacle(written: Written) -> Squares:
    """What hinders a piece that is no pawn; none if only its king's safety can."""
    source, here, there = written.source, written.here, written.there
    reach = np.where((written.rooks | written.queens) & here != 0, ROOK_LINES[source], np.uint64(0))
    reach |= np.where((written.bishops | written.queens) & here != 0, BISHOP_LINES[source], np.uint64(0))
    reach |= np.where(written.knights & here != 0, KNIGHT[source], np.uint64(0))
    reach |= np.where(written.kings & here != 0, KING[source], np.uint64(0))
    return _first(
        (reach & there == 0, _index(Cause.WRONG_GEOMETRY)),
        (BETWEEN[source, written.target] & written.occupied != 0, _index(Cause.BLOCKED)),
        (written.ours & there != 0, _index(Cause.OWN_PIECE_ON_TARGET)),
    )


def _pawn_obstacle(written: Written) -> Squares:
    """The same for a pawn."""
    source, target, there = written.source, written.target, written.there
    double = (target == source + 16) & (source >> 3 == 1)
    push = (target == source + 8) | double
    before = np.where(double, BIT[np.minimum(source + 8, 63)], np.uint64(0))
    takes = PAWN_UP[source] & there != 0
    taken = (written.occupied | written.en_passant) & there != 0
    beside = BIT[(source & 56) | (target & 7)]
    missed = (source >> 3 == 4) & (written.pawns & written.theirs & beside != 0)
    return _first(
        (~(push | takes), _index(Cause.WRONG_GEOMETRY)),
        (push & (written.occupied & before != 0), _index(Cause.BLOCKED)),
        (written.ours & there != 0, _index(Cause.OWN_PIECE_ON_TARGET)),
        (push & (written.occupied & there != 0), _index(Cause.BLOCKED)),
        (takes & ~taken & missed, _index(Cause.EN_PASSANT)),
        (takes & ~taken, _index(Cause.WRONG_GEOMETRY)),
    )


def _first(*choices: tuple[NDArray[np.bool_], int | Squares]) -> Squares:
    """For each move the cause of the first condition that holds, else none; as `np.select`, in a third of its time."""
    found = np.full(len(choices[0][0]), _NONE)
    for condition, cause in reversed(choices):
        np.copyto(found, cause, where=condition)
    return found
