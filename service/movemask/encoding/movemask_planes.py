"""`movemask-tokens-99`: the input of our own networks, from the point of view of the side to move.

| bitboard | what |
|---|---|
| 0-5 | our P N B R Q K |
| 6-11 | their P N B R Q K |
| 12 | our rooks that may still castle (in Chess960 too) |
| 13 | their rooks that may still castle |
| 14 | en-passant square, only where the capture is legal |

There are 99 numbers for each square, a1 first: bitboards 0 to 11 of eight positions, oldest first, each seen by the
side to move in it, then bitboards 12 to 14 of the newest. With Black to move the ranks are flipped (square ^ 56). A
short history is padded with its oldest position.
"""

from __future__ import annotations

from collections.abc import Sequence

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import Boards
from movemask.board.position import Position

PIECES, POSITIONS, BITBOARDS = 12, 8, 15
TOKENS = 99
_FILES = np.uint8(1) << np.arange(8, dtype=np.uint8)[:, None]


def bitboards(positions: Sequence[Position], boards: Boards) -> NDArray[np.uint64]:
    """uint64 `[B, 15]` of positions without their history."""
    packed = np.empty((BITBOARDS, len(boards)), dtype=np.uint64)
    packed[:6], packed[6:12] = boards.kinds & boards.ours, boards.kinds & boards.theirs
    packed[12], packed[13] = boards.castling & boards.ours, boards.castling & boards.theirs
    packed[14] = boards.en_passant
    for row in np.flatnonzero(boards.en_passant).tolist():
        if not positions[row].board.has_legal_en_passant():
            packed[14, row] = 0
    return packed.T


def encode_tokens(positions: Sequence[Position], boards: Boards) -> NDArray[np.float32]:
    """float32 `[B, 64, 99]` of positions with their history."""
    packed = bitboards(positions, boards)
    bits = np.concatenate([np.tile(packed[:, :PIECES], POSITIONS), packed[:, PIECES:]], axis=1)
    with_history = [row for row, position in enumerate(positions) if position.has_history]
    if with_history:
        known: list[chess.Board] = []
        for row in with_history:
            newest_first = [entry.board for entry in positions[row].history(POSITIONS)]
            known += newest_first[-1:] * (POSITIONS - len(newest_first)) + newest_first[::-1]
        # positions of one game share its boards, and each is packed once
        _, first, place = np.unique([id(board) for board in known], return_index=True, return_inverse=True)
        seen = Boards.of([known[index] for index in first.tolist()])
        pieces = np.concatenate([seen.kinds & seen.ours, seen.kinds & seen.theirs]).T
        bits[with_history, : POSITIONS * PIECES] = pieces[place].reshape(len(with_history), -1)
    ranks = np.ascontiguousarray(bits, dtype="<u8").view(np.uint8).reshape(-1, TOKENS, 8).transpose(0, 2, 1)
    on_files = np.ascontiguousarray(ranks)[:, :, None] & _FILES  # [B, rank, file, token]
    tokens: NDArray[np.float32] = (on_files != 0).reshape(-1, 64, TOKENS).astype(np.float32)
    return tokens
