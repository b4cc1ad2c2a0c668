"""`movemask-18`: the planes of our own network. The FEN alone, from the point of view of the side to move.

| plane | what |
|---|---|
| 0-5 | our P N B R Q K |
| 6-11 | their P N B R Q K |
| 12 | our rooks that may still castle (right in Chess960 too) |
| 13 | their rooks that may still castle |
| 14 | en-passant square, only where the capture is legal |
| 15 | half-move clock / 100 |
| 16 | ones if Black is to move |
| 17 | ones, so that a convolution sees the edge of the board |

With Black to move the ranks are flipped (square ^ 56) and the colours swapped.
"""

from __future__ import annotations

from collections.abc import Sequence

import chess
import numpy as np
from numpy.typing import NDArray

from service.encoding.bitboards import mirrored, piece_bitboards, unpacked
from service.encoding.position import Position

PLANES = 18
BITBOARDS = 15
_HALFMOVE, _BLACK, _ONES = 15, 16, 17


def bitboards(board: chess.Board) -> NDArray[np.uint64]:
    """uint64 `[15]`: planes 0 to 14, mirrored if Black is to move. Training keeps positions in this form."""
    rights = board.clean_castling_rights()
    ours, theirs = rights & board.occupied_co[board.turn], rights & board.occupied_co[not board.turn]
    en_passant = 0
    if board.ep_square is not None and board.has_legal_en_passant():
        en_passant = chess.BB_SQUARES[board.ep_square]
    packed = np.array([*piece_bitboards(board), ours, theirs, en_passant], dtype=np.uint64)
    return packed if board.turn == chess.WHITE else mirrored(packed)


def expand(
    packed: NDArray[np.uint64], halfmove_clock: NDArray[np.integer], black_to_move: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """uint64 `[B, 15]`, half-moves `[B]`, bool `[B]` → float32 planes `[B, 18, 8, 8]`."""
    planes = np.empty((len(packed), PLANES, 8, 8), dtype=np.float32)
    planes[:, :BITBOARDS] = unpacked(packed)
    planes[:, _HALFMOVE] = (np.minimum(halfmove_clock, 100) / 100)[:, None, None]
    planes[:, _BLACK] = black_to_move[:, None, None]
    planes[:, _ONES] = 1.0
    return planes


def encode_all(positions: Sequence[Position]) -> NDArray[np.float32]:
    """float32 `[B, 18, 8, 8]` of positions, made in one array."""
    boards = [position.board for position in positions]
    packed = np.array([bitboards(board) for board in boards], dtype=np.uint64).reshape(-1, BITBOARDS)
    clocks = np.array([min(board.halfmove_clock, 100) for board in boards], dtype=np.intp)
    return expand(packed, clocks, np.array([board.turn == chess.BLACK for board in boards], dtype=np.bool_))
