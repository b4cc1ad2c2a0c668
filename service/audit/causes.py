"""Why slots cannot be played: one cause for each illegal slot, the first in the order of `Cause` that applies.

A slot is judged by the squares it stands for, not by the move that python-chess would make of them: in a vocabulary
that writes castling as e1h1, the slot e1g1 is a king that moves two squares, `wrong_geometry`, castling allowed or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import chess
import numpy as np
from numpy.typing import NDArray

from service.encoding.attacks import (
    BETWEEN,
    BISHOP_LINES,
    BIT,
    KING,
    KNIGHT,
    PAWN_UP,
    ROOK_LINES,
    Bits,
    Squares,
)
from service.encoding.boards import Boards
from service.encoding.vocabulary import Castling, Vocabulary


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


_CAUSES = tuple(Cause)
_NONE = -1
_LAST_RANK = np.uint64(chess.BB_RANK_8)  # where our pawns promote


@dataclass(frozen=True, slots=True)
class Written:
    """K moves as they are written: the row of each one's position, its squares as the side to move sees them, and its
    promotion piece or 0, all intp `[K]`; bool `[K]`, whether castling is written as the king taking its rook."""

    row: Squares
    source: Squares
    target: Squares
    promotion: Squares
    takes_rook: NDArray[np.bool_]

    @classmethod
    def of_slots(cls, rows: Squares, slots: Squares, boards: Boards, vocabulary: Vocabulary) -> Written:
        """What slots `[K]` stand for in the positions of `rows` `[K]`; from a square to itself for those of no move."""
        source, target, promotion = vocabulary.columns()[:, slots]
        turned = np.where(boards.black[rows], vocabulary.flip.value ^ 56, 0)
        takes_rook = np.full(len(rows), vocabulary.castling is Castling.KING_TAKES_ROOK)
        return cls(rows, source ^ turned, target ^ turned, promotion, takes_rook)


def causes_of(written: Written, boards: Boards, legal: Sequence[Squares]) -> list[Cause]:
    """The cause of each move; `legal` are the legal moves `[L]` of each position (`move_codes`). ValueError for a move
    that can be played."""
    source, target, promotion = written.source, written.target, written.promotion
    here, there = BIT[source], BIT[target]
    own = _Own(boards, written.row)
    possible = _possible(source, target, promotion)
    castling = _castling(written, own)
    obstacle = np.where(own.pawns & here != 0, _pawn_obstacle(written, own), _obstacle(written, own))
    found = np.select(
        [~possible, own.occupied & here == 0, own.ours & here == 0, castling != _NONE, obstacle != _NONE],
        [
            _index(Cause.IMPOSSIBLE_SLOT),
            _index(Cause.EMPTY_SQUARE),
            _index(Cause.ENEMY_PIECE),
            castling,
            obstacle,
        ],
        _NONE,
    )
    promotes = (own.pawns & here != 0) & (there & _LAST_RANK != 0)
    for place in np.flatnonzero(found == _NONE).tolist():
        # Nothing stands in its way: it is legal but for its promotion piece, or its king would be in check.
        row, turned = int(written.row[place]), 56 if own.black[place] else 0
        squares = (int(source[place]) ^ turned) << 6 | int(target[place]) ^ turned
        if not (legal[row] & 0xFFF == squares).any():
            found[place] = _index(Cause.LEAVES_KING_IN_CHECK)
        elif promotes[place] or promotion[place]:
            found[place] = _index(Cause.PROMOTION_FORM)
        else:
            move = chess.square_name(squares >> 6) + chess.square_name(squares & 63)
            raise ValueError(f"{move} can be played")
    return [_CAUSES[cause] for cause in found.tolist()]


def moves_written(written: Written, boards: Boards, vocabulary: Vocabulary) -> Squares:
    """The moves as python-chess writes them (`move_codes`), legal or not: with the piece that a bare promotion stands
    for, and standard castling as the king's two squares."""
    source, target, promotion = written.source, written.target, written.promotion
    own = _Own(boards, written.row)
    if vocabulary.bare_promotion is not None:
        last = (target >= 56) | (target < 8)
        bare = (promotion == 0) & last & (own.pawns & BIT[source] != 0)
        promotion = np.where(bare, vocabulary.bare_promotion, promotion)
    castles = written.takes_rook & ~own.chess960 & (_castling(written, own) != _NONE)
    target = np.where(castles, np.where(target > source, chess.G1, chess.C1), target)
    turned = np.where(own.black, 56, 0)
    nothing = source == target  # of no move: the null move, whatever side sees it
    code = promotion << 12 | (source ^ turned) << 6 | (target ^ turned)
    return np.where(nothing, 0, code)


def _index(cause: Cause) -> int:
    return _CAUSES.index(cause)


class _Own:
    """What stands on the board of each move's position, uint64 `[K]`."""

    def __init__(self, boards: Boards, rows: Squares) -> None:
        self.pawns, self.knights, self.bishops, self.rooks, self.queens, self.kings = boards.kinds[:, rows]
        self.ours, self.theirs = boards.ours[rows], boards.theirs[rows]
        self.castling, self.en_passant = boards.castling[rows], boards.en_passant[rows]
        self.black, self.chess960 = boards.black[rows], boards.chess960[rows]
        self.occupied: Bits = self.ours | self.theirs


def _possible(source: Squares, target: Squares, promotion: Squares) -> NDArray[np.bool_]:
    """Whether some piece of some side could make the move in some position."""
    reached = (ROOK_LINES[source] | BISHOP_LINES[source] | KNIGHT[source]) & BIT[target] != 0
    ranks = (source >> 3) * 8 + (target >> 3)
    last = (np.abs((source & 7) - (target & 7)) <= 1) & ((ranks == 6 * 8 + 7) | (ranks == 1 * 8))
    return np.asarray(reached & ((promotion == 0) | last))


def _castling(written: Written, own: _Own) -> Squares:
    """The cause of a move that has the form of castling, else none."""
    source, target = written.source, written.target
    form = (own.kings & BIT[source] != 0) & (source < 8) & (target < 8)
    usual = source == chess.E1
    by_rook = form & (own.rooks & own.ours & BIT[target] != 0)
    by_rook &= own.chess960 | usual & ((target == chess.A1) | (target == chess.H1))
    by_king = form & usual & ((target == chess.C1) | (target == chess.G1))
    rook = np.where(written.takes_rook, target, np.where(target == chess.C1, chess.A1, chess.H1))
    right = own.castling & own.ours & BIT[rook] != 0
    cause = np.where(right, _index(Cause.CASTLING_PATH), _index(Cause.CASTLING_RIGHT))
    return np.where(np.where(written.takes_rook, by_rook, by_king), cause, _NONE)


def _obstacle(written: Written, own: _Own) -> Squares:
    """What hinders a piece that is no pawn; none if only its king's safety can."""
    source, here, there = written.source, BIT[written.source], BIT[written.target]
    reach = np.where((own.rooks | own.queens) & here != 0, ROOK_LINES[source], np.uint64(0))
    reach |= np.where((own.bishops | own.queens) & here != 0, BISHOP_LINES[source], np.uint64(0))
    reach |= np.where(own.knights & here != 0, KNIGHT[source], np.uint64(0))
    reach |= np.where(own.kings & here != 0, KING[source], np.uint64(0))
    return np.select(
        [reach & there == 0, BETWEEN[source, written.target] & own.occupied != 0, own.ours & there != 0],
        [_index(Cause.WRONG_GEOMETRY), _index(Cause.BLOCKED), _index(Cause.OWN_PIECE_ON_TARGET)],
        _NONE,
    )


def _pawn_obstacle(written: Written, own: _Own) -> Squares:
    """The same for a pawn."""
    source, target, there = written.source, written.target, BIT[written.target]
    double = (target == source + 16) & (source >> 3 == 1)
    push = (target == source + 8) | double
    before = np.where(double, BIT[np.minimum(source + 8, 63)], np.uint64(0))
    takes = PAWN_UP[source] & there != 0
    beside = BIT[(source & 56) | (target & 7)]
    missed = (source >> 3 == 4) & (own.pawns & own.theirs & beside != 0)
    return np.select(
        [
            ~push & ~takes,
            push & (own.occupied & before != 0),
            own.ours & there != 0,
            push & (own.occupied & there != 0),
            takes & ((own.occupied | own.en_passant) & there == 0) & missed,
            takes & ((own.occupied | own.en_passant) & there == 0),
        ],
        [
            _index(Cause.WRONG_GEOMETRY),
            _index(Cause.BLOCKED),
            _index(Cause.OWN_PIECE_ON_TARGET),
            _index(Cause.BLOCKED),
            _index(Cause.EN_PASSANT),
            _index(Cause.WRONG_GEOMETRY),
        ],
        _NONE,
    )
