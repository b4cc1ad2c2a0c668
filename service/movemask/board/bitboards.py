"""Bitboards as arrays: uint64 `[N]`, bit `8 * rank + file`, seen from the side to move."""

from __future__ import annotations

import chess
import numpy as np
from numpy.typing import NDArray


def piece_bitboards(board: chess.Board) -> list[int]:
    """Twelve bitboards, ours P N B R Q K then theirs, on the board's own squares (not mirrored)."""
    ours, theirs = board.occupied_co[board.turn], board.occupied_co[not board.turn]
    kinds = (board.pawns, board.knights, board.bishops, board.rooks, board.queens, board.kings)
    return [kind & ours for kind in kinds] + [kind & theirs for kind in kinds]


def mirrored(bitboards: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The same bitboards with the ranks flipped (square ^ 56): a rank is a byte, so the bytes swap."""
    return bitboards.byteswap()


def unpacked(bitboards: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """uint64 `[..., N]` → 0/1 uint8 `[..., N, 8, 8]` indexed `[rank, file]`, a1 at `[0, 0]`."""
    rows = np.ascontiguousarray(bitboards, dtype="<u8").view(np.uint8).reshape(*bitboards.shape, 8)
    bits = np.unpackbits(rows, axis=-1, bitorder="little")
    return bits.reshape(*bitboards.shape, 8, 8)
