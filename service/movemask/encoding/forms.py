"""How vocabularies and python-chess write castling and promotions; no other module knows both.

python-chess writes castling as e1g1, in Chess960 as the king taking its rook (e1h1), and always names the promotion
piece. A vocabulary writes castling the same way in both, and may omit one promotion piece (lc0: the knight).
"""

from __future__ import annotations

from enum import Enum

import chess
import numpy as np

from movemask.board.boards import BIT, Boards, Flags, Squares
from movemask.board.moves import from_mover


class Castling(Enum):
    """How a vocabulary writes castling."""

    KING_TAKES_ROOK = "king_takes_rook"  # e1h1, as lc0 and Chess960 do
    KING_TWO_SQUARES = "king_two_squares"  # e1g1, standard chess only


class Flip(Enum):
    """How Black's squares are changed before a move is looked up: each is xored with the value."""

    RANKS = 0o70  # the board mirrored, as nearly every network has it
    ROTATED = 0o77  # the board rotated by 180°
    NONE = 0  # both colours' moves have slots of their own


def takes_own_rook(board: chess.Board, source: chess.Square, target: chess.Square) -> bool:
    """Whether the squares are those of a standard castling move written as king takes rook."""
    ours = board.occupied_co[board.turn]
    back = 0 if board.turn == chess.WHITE else 7
    return bool(
        board.kings & ours & chess.BB_SQUARES[source]
        and board.rooks & ours & chess.BB_SQUARES[target]
        and source == chess.square(4, back)
        and target in (chess.square(0, back), chess.square(7, back))
    )


def promotes(source: Squares | chess.Square, target: Squares | chess.Square) -> Flags:
    """Whether these are the squares of a promotion, of either side."""
    ranks, files = (source >> 3) * 8 + (target >> 3), (source & 7) - (target & 7)
    return np.asarray((np.abs(files) <= 1) & ((ranks == 6 * 8 + 7) | (ranks == 1 * 8)))


#: The rook's square by the code of a standard castling move, seen by the side to move; -1 for every other code.
_ROOK_OF = np.full(6 << 12, -1, dtype=np.intp)
_ROOK_OF[chess.E1 << 6 | chess.G1], _ROOK_OF[chess.E1 << 6 | chess.C1] = chess.H1, chess.A1


def castling_as_rook(codes: Squares, rows: Squares, boards: Boards) -> Squares:
    """Codes `[N]` of legal moves, seen by the side to move, with standard castling written as king takes rook."""
    places = np.flatnonzero(_ROOK_OF[codes] >= 0)
    if not len(places):
        return codes
    of = rows[places]
    castles = (boards.kinds[5][of] & BIT[chess.E1] != 0) & ~boards.chess960[of]
    places = places[castles]
    written = codes.copy()
    written[places] = codes[places] & ~63 | _ROOK_OF[codes[places]]
    return written


def castling_forms(
    source: Squares, target: Squares, rows: Squares, boards: Boards, takes_rook: Flags
) -> tuple[Flags, Flags]:
    """Which moves `[K]`, seen by the side to move, look like castling, and which of those have the right to castle.

    takes_rook : bool `[K]`, whether castling is written as king takes rook
    """
    kings, rooks, ours = boards.kinds[5][rows], boards.kinds[3][rows], boards.ours[rows]
    form = (kings & ours & BIT[source] != 0) & (source < 8) & (target < 8)
    if not form.any():
        return form, form
    from_e1 = source == chess.E1
    by_rook = rooks & ours & BIT[target] != 0
    by_rook &= boards.chess960[rows] | from_e1 & ((target == chess.A1) | (target == chess.H1))
    by_king = from_e1 & ((target == chess.C1) | (target == chess.G1))
    rook = np.where(takes_rook, target, np.where(target == chess.C1, chess.A1, chess.H1))
    form &= np.where(takes_rook, by_rook, by_king)
    return form, form & (boards.castling[rows] & ours & BIT[rook] != 0)


def codes_of_written(
    source: Squares,
    target: Squares,
    promotion: Squares,
    rows: Squares,
    boards: Boards,
    bare_promotion: chess.PieceType | None,
) -> Squares:
    """The codes `[K]` (`move_codes`) of moves that a vocabulary writes, seen by the side to move.

    A bare promotion gets the piece that it stands for; a move from a square to itself is the null move, 0.
    """
    if bare_promotion is not None:
        bare = (promotion == 0) & promotes(source, target) & (boards.kinds[0][rows] & BIT[source] != 0)
        promotion = np.where(bare, bare_promotion, promotion)
    return np.where(source == target, 0, from_mover(promotion << 12 | source << 6 | target, boards.black[rows]))
