"""Why a slot cannot be played: one cause for each illegal slot, the first in the order of `Cause` that applies.

A slot is judged by the squares it stands for, not by the move that python-chess would make of them: in a vocabulary
that writes castling as e1h1, the slot e1g1 is a king that moves two squares, `wrong_geometry`, castling allowed or not.
"""

from __future__ import annotations

from enum import Enum
from functools import cache

import chess

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


def cause_of(slot: int, board: chess.Board, vocabulary: Vocabulary) -> Cause:
    """The cause of one illegal slot; ValueError for a slot that can be played."""
    entry = vocabulary.entries[slot]
    if entry is None:
        return Cause.IMPOSSIBLE_SLOT
    source, target, promotion = entry
    if board.turn == chess.BLACK:
        source, target = source ^ vocabulary.flip.value, target ^ vocabulary.flip.value
    return cause_of_squares(source, target, promotion, board, vocabulary.castling)


def cause_of_squares(
    source: chess.Square,
    target: chess.Square,
    promotion: chess.PieceType | None,
    board: chess.Board,
    castling: Castling,
) -> Cause:
    """The cause of a move that is written by its squares, castling as told; ValueError for one that can be played."""
    if not _possible(source, target, promotion):
        return Cause.IMPOSSIBLE_SLOT
    if not board.occupied & chess.BB_SQUARES[source]:
        return Cause.EMPTY_SQUARE
    ours = board.occupied_co[board.turn]
    if not ours & chess.BB_SQUARES[source]:
        return Cause.ENEMY_PIECE
    rook = _castling_rook(board, source, target, castling)
    if rook is not None:
        return Cause.CASTLING_PATH if board.clean_castling_rights() & chess.BB_SQUARES[rook] else Cause.CASTLING_RIGHT
    pawn = bool(board.pawns & chess.BB_SQUARES[source])
    obstacle = _pawn_obstacle(board, source, target) if pawn else _obstacle(board, source, target)
    if obstacle is not None:
        return obstacle
    promotes = pawn and bool(chess.BB_SQUARES[target] & chess.BB_BACKRANKS)
    if board.is_into_check(chess.Move(source, target, chess.QUEEN if promotes else None)):
        return Cause.LEAVES_KING_IN_CHECK
    if promotes or promotion is not None:
        return Cause.PROMOTION_FORM
    move = chess.square_name(source) + chess.square_name(target)
    raise ValueError(f"{move} can be played in {board.fen()!r}")


@cache
def _possible(source: chess.Square, target: chess.Square, promotion: chess.PieceType | None) -> bool:
    """Whether some piece of some side could make the move in some position."""
    line = chess.BB_RANK_ATTACKS[source][0] | chess.BB_FILE_ATTACKS[source][0] | chess.BB_DIAG_ATTACKS[source][0]
    if not (line | chess.BB_KNIGHT_ATTACKS[source]) & chess.BB_SQUARES[target]:
        return False
    if promotion is None:
        return True
    near = abs(chess.square_file(source) - chess.square_file(target)) <= 1
    return near and (chess.square_rank(source), chess.square_rank(target)) in ((6, 7), (1, 0))


def _castling_rook(
    board: chess.Board, source: chess.Square, target: chess.Square, castling: Castling
) -> chess.Square | None:
    """The rook of a move that has the form of castling, else None."""
    back = 0 if board.turn == chess.WHITE else 7
    if not board.kings & chess.BB_SQUARES[source] or {chess.square_rank(source), chess.square_rank(target)} != {back}:
        return None
    own_rooks = board.rooks & board.occupied_co[board.turn]
    if castling is Castling.KING_TAKES_ROOK:
        usual = chess.square_file(source) == 4 and chess.square_file(target) in (0, 7)
        return target if (usual or board.chess960) and own_rooks & chess.BB_SQUARES[target] else None
    if chess.square_file(source) != 4 or chess.square_file(target) not in (2, 6):
        return None
    return chess.square(0 if chess.square_file(target) == 2 else 7, back)


def _obstacle(board: chess.Board, source: chess.Square, target: chess.Square) -> Cause | None:
    """What hinders a piece that is no pawn; None if only its king's safety can."""
    here, there = chess.BB_SQUARES[source], chess.BB_SQUARES[target]
    reach = 0
    if board.knights & here:
        reach = chess.BB_KNIGHT_ATTACKS[source]
    elif board.kings & here:
        reach = chess.BB_KING_ATTACKS[source]
    else:
        if (board.rooks | board.queens) & here:
            reach = chess.BB_RANK_ATTACKS[source][0] | chess.BB_FILE_ATTACKS[source][0]
        if (board.bishops | board.queens) & here:
            reach |= chess.BB_DIAG_ATTACKS[source][0]
    if not reach & there:
        return Cause.WRONG_GEOMETRY
    if chess.between(source, target) & board.occupied:
        return Cause.BLOCKED
    return Cause.OWN_PIECE_ON_TARGET if board.occupied_co[board.turn] & there else None


def _pawn_obstacle(board: chess.Board, source: chess.Square, target: chess.Square) -> Cause | None:
    """The same for a pawn."""
    white = board.turn == chess.WHITE
    step = 8 if white else -8
    there, ours = chess.BB_SQUARES[target], board.occupied_co[board.turn]
    rank = chess.square_rank(source) if white else 7 - chess.square_rank(source)
    double = target == source + 2 * step and rank == 1
    if target == source + step or double:
        if double and board.occupied & chess.BB_SQUARES[source + step]:
            return Cause.BLOCKED
        if ours & there:
            return Cause.OWN_PIECE_ON_TARGET
        return Cause.BLOCKED if board.occupied & there else None
    if not chess.BB_PAWN_ATTACKS[board.turn][source] & there:
        return Cause.WRONG_GEOMETRY
    if ours & there:
        return Cause.OWN_PIECE_ON_TARGET
    if board.occupied & there or target == board.ep_square:
        return None
    beside = chess.BB_SQUARES[chess.square(chess.square_file(target), chess.square_rank(source))]
    enemy_pawns = board.pawns & board.occupied_co[not board.turn]
    return Cause.EN_PASSANT if rank == 4 and enemy_pawns & beside else Cause.WRONG_GEOMETRY
