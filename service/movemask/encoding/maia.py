"""The inputs of Maia-2 (`maia2-18`) and Maia-3 (`maia3-tokens-12`, `maia3-tokens-96`).

Maia-2: planes 0-5 White P N B R Q K, 6-11 Black, 12 ones if White is to move, 13-16 castling K Q k q, 17 the
en-passant square. Maia-3: for each square, a1 first, twelve numbers for P N B R Q K p n b r q k, and nothing else.
With Black to move the board is mirrored first (`Board.mirror`), so that the side to move is always White.

Sources: `maia2.utils.board_to_tensor` of the PyPI package, `maia3.dataset.tokenize_board` and
`get_historical_tokens`.
"""

from __future__ import annotations

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import mirrored, piece_bitboards, unpacked
from movemask.board.position import Position

MAIA2_PLANES = 18
SQUARES, PIECES, BLOCKS = 64, 12, 8
_TURN, _CASTLING, _EN_PASSANT = 12, 13, 17


def encode_maia2(position: Position) -> NDArray[np.float32]:
    """float32 `[18, 8, 8]` of one position."""
    board = position.board
    planes = np.zeros((MAIA2_PLANES, 8, 8), dtype=np.float32)
    planes[:12] = unpacked(_pieces(board))
    planes[_TURN] = 1.0  # after mirroring, White is always to move
    for offset, side in ((0, board.turn), (2, not board.turn)):
        planes[_CASTLING + offset] = board.has_kingside_castling_rights(side)
        planes[_CASTLING + offset + 1] = board.has_queenside_castling_rights(side)
    if board.ep_square is not None:
        square = board.ep_square if board.turn == chess.WHITE else board.ep_square ^ 0o70
        planes[_EN_PASSANT, chess.square_rank(square), chess.square_file(square)] = 1.0
    return planes


def encode_maia3(position: Position) -> NDArray[np.float32]:
    """float32 `[64, 12]` of one position."""
    return _tokens(position.board)


def encode_maia3_history(position: Position) -> NDArray[np.float32]:
    """float32 `[64, 96]`: eight positions, oldest first; a short history is padded with its oldest position.

    Each is seen by the side to move in it.
    """
    blocks = [_tokens(known.board) for known in position.history(BLOCKS)][::-1]
    return np.concatenate([*blocks[:1] * (BLOCKS - len(blocks)), *blocks], axis=1)


def _pieces(board: chess.Board) -> NDArray[np.uint64]:
    packed = np.array(piece_bitboards(board), dtype=np.uint64)
    return packed if board.turn == chess.WHITE else mirrored(packed)


def _tokens(board: chess.Board) -> NDArray[np.float32]:
    by_piece = unpacked(_pieces(board)).reshape(PIECES, SQUARES)
    return np.ascontiguousarray(by_piece.T, dtype=np.float32)
