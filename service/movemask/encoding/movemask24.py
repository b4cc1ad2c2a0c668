"""`movemask-24`: the planes of movemask-4. Those of `movemask-18`, and what the last two moves changed.

| plane | what |
|---|---|
| 0-17 | as in `movemask-18` |
| 18-20 | the opponent's last move: squares it left, squares it reached, square of what it captured |
| 21-23 | the same of our move before it |

A move that is not known leaves its planes empty: with a bare FEN all six are. Castling leaves two squares and reaches
two, in Chess960 only those whose occupation changes. With Black to move the ranks are flipped (square ^ 56) in
earlier positions as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import Boards, mirrored, unpacked
from movemask.board.position import Position
from movemask.encoding import movemask18

PLANES = 24
HALFMOVE = 15  # the first plane of movemask-18 that is no bitboard
LAST_MOVES = movemask18.PLANES


def encode_all(positions: Sequence[Position], boards: Boards) -> NDArray[np.float32]:
    """float32 `[B, 24, 8, 8]` of positions with their history."""
    planes = np.zeros((len(boards), PLANES, 8, 8), dtype=np.float32)
    planes[:, :LAST_MOVES] = movemask18.encode_all(positions, boards)
    for row, position in enumerate(positions):
        if position.has_history:
            planes[row, LAST_MOVES:] = unpacked(last_moves(position))
    return planes


def expand(
    packed: NDArray[np.uint64], halfmove_clock: NDArray[np.integer], black_to_move: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """uint64 `[B, 21]`, half-moves `[B]`, bool `[B]` → float32 planes `[B, 24, 8, 8]`."""
    known = movemask18.expand(packed[:, :HALFMOVE], halfmove_clock, black_to_move)
    return np.concatenate([known, unpacked(packed[:, HALFMOVE:])], axis=1)


def bitboards(position: Position) -> NDArray[np.uint64]:
    """uint64 `[21]`: planes 0 to 14 and 18 to 23 of one position. Training keeps positions in this form."""
    return np.concatenate([movemask18.bitboards(position.board), last_moves(position)])


def last_moves(position: Position) -> NDArray[np.uint64]:
    """uint64 `[6]`: planes 18 to 23 of one position."""
    changed = np.zeros(6, dtype=np.uint64)
    known = [entry.board for entry in position.history(3)]
    for back, (after, before) in enumerate(pairwise(known)):
        mover = before.turn
        left = before.occupied_co[mover] & ~after.occupied_co[mover]
        reached = after.occupied_co[mover] & ~before.occupied_co[mover]
        captured = before.occupied_co[not mover] & ~after.occupied_co[not mover]
        changed[3 * back : 3 * back + 3] = (left, reached, captured)
    return mirrored(changed) if position.black else changed
