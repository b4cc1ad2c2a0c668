"""Castling rights and en-passant squares that do not fit a position, and rights that only Chess960 allows."""

from __future__ import annotations

import chess

#: Files whose rooks castle in Chess960 only. Standard chess has no use for their letters in a FEN.
_INNER_FILES = frozenset("bcdefg")


def repaired(fen: str, *, chess960: bool | None) -> tuple[chess.Board, list[str]]:
    """Returns the board of a FEN without castling rights and an en-passant square that do not fit,
    and notes on each.

    chess960 : whether castling follows Chess960; None: as the rights tell (`means_chess960`)

    The board may be invalid in other ways. Raises ValueError for a text that is not a FEN.
    """
    notes = []
    board = chess.Board(fen, chess960=means_chess960(fen) if chess960 is None else chess960)
    if board.status() & chess.STATUS_BAD_CASTLING_RIGHTS:
        board.castling_rights = board.clean_castling_rights()
        notes.append(
            f"castling rights {fen.split()[2]} do not fit the king and rooks: read as {board.castling_xfen()}"
        )
    if board.ep_square is not None and board.status() & chess.STATUS_INVALID_EP_SQUARE:
        notes.append(
            f"no pawn has just passed {chess.square_name(board.ep_square)}: read without en passant"
        )
        board.ep_square = None
    return board, notes


def fits_chess960(fen: str) -> bool:
    """Returns whether the castling rights of a FEN fit Chess960, and not standard chess.

    Raises ValueError.
    """
    standard, chess960 = chess.Board(fen), chess.Board(fen, chess960=True)
    return bool(
        standard.status() & chess.STATUS_BAD_CASTLING_RIGHTS
        and not chess960.status() & chess.STATUS_BAD_CASTLING_RIGHTS
    )


def means_chess960(fen: str) -> bool:
    """Returns whether a FEN is one of Chess960 by its castling rights. Raises ValueError.

    Rights of standard chess that are out of date may fit Chess960 by accident, such as KQkq with
    rooks on b1 and h1. So rights in letters of inner files count. Others count only if they could
    be those of a game's first position:

    - both sides have rights: their kings are on one file, and so are the rooks of each wing
    - one side alone has rights: its king is not on the e-file
    """
    if not fits_chess960(fen):
        return False
    if _INNER_FILES.intersection(fen.split()[2].lower()):
        return True
    board = chess.Board(fen, chess960=True)
    sides: list[tuple[int, dict[bool, int]]] = []  # file of the king, and file of each wing's rook
    for side, rank in ((chess.WHITE, chess.BB_RANK_1), (chess.BLACK, chess.BB_RANK_8)):
        king, rooks = board.king(side), list(chess.scan_forward(board.castling_rights & rank))
        if king is not None and rooks:
            files = {rook > king: chess.square_file(rook) for rook in rooks}
            sides.append((chess.square_file(king), files))
    if len(sides) == 1:
        return sides[0][0] != chess.square_file(chess.E1)
    (king_file, files), (other_king_file, other_files) = sides
    same_rooks = all(files.get(wing, file) == file for wing, file in other_files.items())
    return king_file == other_king_file and same_rooks
