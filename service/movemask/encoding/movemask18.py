"""`movemask-18`: the planes of our own network. The FEN alone, from the point of view of the side to move.

| plane | what |
|---|---|
| 0-5 | our P N B R Q K |
| 6-11 | their P N B R Q K |
| 12 | our rooks that may still castle (in Chess960 too) |
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

from movemask.board.boards import Boards, unpacked
from movemask.board.position import Position

PLANES = 18
BITBOARDS = 15
_HALFMOVE, _BLACK, _ONES = 15, 16, 17


def bitboards(board: chess.Board) -> NDArray[np.uint64]:
    """uint64 `[15]`: planes 0 to 14 of one position. Training keeps positions in this form."""
    packed: NDArray[np.uint64] = _packed([board], Boards.of([board]))[0]
    return packed


def _packed(positions: Sequence[chess.Board], boards: Boards) -> NDArray[np.uint64]:
    """uint64 `[B, 15]`: planes 0 to 14."""
    packed = np.empty((BITBOARDS, len(boards)), dtype=np.uint64)
    packed[:6], packed[6:12] = boards.kinds & boards.ours, boards.kinds & boards.theirs
    packed[12], packed[13] = boards.castling & boards.ours, boards.castling & boards.theirs
    packed[14] = boards.en_passant
    for row in np.flatnonzero(boards.en_passant).tolist():
        if not positions[row].has_legal_en_passant():
            packed[14, row] = 0
    return packed.T


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


def encode_all(positions: Sequence[Position], boards: Boards) -> NDArray[np.float32]:
    """float32 `[B, 18, 8, 8]` of positions."""
    return expand(_packed([position.board for position in positions], boards), boards.clock, boards.black)
