"""`movemask-tokens-99`: the input of movemask's own networks, from the point of view of the side to move.

| bitboard | what |
|---|---|
| 0-5 | our P N B R Q K |
| 6-11 | their P N B R Q K |
| 12 | our rooks that may still castle (in Chess960 too) |
| 13 | their rooks that may still castle |
| 14 | en-passant square, only if the capture is legal |

Each square has 99 numbers; a1 is first. They are bitboards 0 to 11 of eight positions, oldest first, each seen by its
own side to move, then bitboards 12 to 14 of the newest position. With Black to move the ranks are flipped (square ^
56). A short history is padded with its oldest position.
"""

from __future__ import annotations

from collections.abc import Sequence

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import Boards
from movemask.board.position import PlayedGame, Position

PIECES, POSITIONS, BITBOARDS = 12, 8, 15
TOKENS = 99
_FILES = np.uint8(1) << np.arange(8, dtype=np.uint8)[:, None]


def bitboards(positions: Sequence[Position], boards: Boards) -> NDArray[np.uint64]:
    """Returns the bitboards of positions without their history: uint64 `[B, 15]`."""
    packed = np.empty((BITBOARDS, len(boards)), dtype=np.uint64)
    packed[:6], packed[6:12] = boards.pieces & boards.ours, boards.pieces & boards.theirs
    packed[12], packed[13] = boards.castling & boards.ours, boards.castling & boards.theirs
    packed[14] = boards.en_passant
    for row in np.flatnonzero(boards.en_passant).tolist():
        if not positions[row].board.has_legal_en_passant():
            packed[14, row] = 0
    return packed.T


def encode_tokens(positions: Sequence[Position], boards: Boards) -> NDArray[np.float32]:
    """Returns the input of positions with their history: float32 `[B, 64, 99]`."""
    packed = bitboards(positions, boards)
    bits = np.concatenate([np.tile(packed[:, :PIECES], POSITIONS), packed[:, PIECES:]], axis=1)
    with_history = [row for row, position in enumerate(positions) if position.has_history]
    if with_history:
        # Positions of one game share earlier positions. Each earlier position is packed once.
        places: dict[tuple[PlayedGame | None, int], int] = {}
        distinct: list[chess.Board] = []
        oldest_first: list[int] = []  # eight places in `distinct` for each position
        for row in with_history:
            game, newest_first = positions[row].game, []
            for entry in positions[row].history(POSITIONS):
                place = places.setdefault((game, entry.ply), len(distinct))
                if place == len(distinct):
                    distinct.append(entry.board)
                newest_first.append(place)
            oldest_first += newest_first[-1:] * (POSITIONS - len(newest_first)) + newest_first[::-1]
        distinct_boards = Boards.of(distinct)
        pieces = np.concatenate(
            [
                distinct_boards.pieces & distinct_boards.ours,
                distinct_boards.pieces & distinct_boards.theirs,
            ]
        ).T
        bits[with_history, : POSITIONS * PIECES] = pieces[oldest_first].reshape(
            len(with_history), -1
        )
    ranks = (
        np.ascontiguousarray(bits, dtype="<u8")
        .view(np.uint8)
        .reshape(-1, TOKENS, 8)
        .transpose(0, 2, 1)
    )
    on_files = np.ascontiguousarray(ranks)[:, :, None] & _FILES  # [B, rank, file, token]
    tokens: NDArray[np.float32] = (on_files != 0).reshape(-1, 64, TOKENS).astype(np.float32)
    return tokens
