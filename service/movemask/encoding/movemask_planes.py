"""The planes of our own networks, from the point of view of the side to move.

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
| 18-20 | the opponent's last move: squares it left, squares it reached, square of what it captured |
| 21-23 | the same of our move before it |

`movemask-18` has the first eighteen: the FEN alone. In `movemask-24` a move that is not known leaves its planes empty:
with a bare FEN all six are. Castling leaves two squares and reaches two, in Chess960 only those whose occupation
changes. With Black to move the ranks are flipped (square ^ 56), in earlier positions too, and the colours swapped.

`movemask-tokens-99` has 99 numbers for each square, a1 first: planes 0 to 11 of eight positions, oldest first, each
seen by the side to move in it, then planes 12 to 14 of the newest. A short history is padded with its oldest position.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import Boards, mirrored, unpacked
from movemask.board.position import Position

PLANES = 24
HALFMOVE = 15  # the first plane that is no bitboard
_BLACK, _ONES = 16, 17
LAST_MOVES = 18  # the first plane of movemask-24 alone
PIECES, POSITIONS = 12, 8
TOKENS = 99
_FILES = np.uint8(1) << np.arange(8, dtype=np.uint8)[:, None]


def _packed(positions: Sequence[chess.Board], boards: Boards) -> NDArray[np.uint64]:
    """uint64 `[B, 15]`: planes 0 to 14."""
    packed = np.empty((HALFMOVE, len(boards)), dtype=np.uint64)
    packed[:6], packed[6:12] = boards.kinds & boards.ours, boards.kinds & boards.theirs
    packed[12], packed[13] = boards.castling & boards.ours, boards.castling & boards.theirs
    packed[14] = boards.en_passant
    for row in np.flatnonzero(boards.en_passant).tolist():
        if not positions[row].has_legal_en_passant():
            packed[14, row] = 0
    return packed.T


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


def expand(
    packed: NDArray[np.uint64], halfmove_clock: NDArray[np.integer], black: NDArray[np.bool_], planes: int = PLANES
) -> NDArray[np.float32]:
    """uint64 `[B, 15]` or `[B, 21]` (`bitboards`), half-moves `[B]`, bool `[B]` → float32 `[B, planes, 8, 8]`.

    Planes that are not given stay empty.
    """
    found = np.zeros((len(packed), planes, 8, 8), dtype=np.float32)
    found[:, :HALFMOVE] = unpacked(packed[:, :HALFMOVE])
    found[:, HALFMOVE] = (np.minimum(halfmove_clock, 100) / 100)[:, None, None]
    found[:, _BLACK] = black[:, None, None]
    found[:, _ONES] = 1.0
    if packed.shape[1] > HALFMOVE:
        found[:, LAST_MOVES:] = unpacked(packed[:, HALFMOVE:])
    return found


def encode_18(positions: Sequence[Position], boards: Boards, planes: int = LAST_MOVES) -> NDArray[np.float32]:
    """float32 `[B, 18, 8, 8]` of positions, or more planes, empty."""
    return expand(_packed([position.board for position in positions], boards), boards.clock, boards.black, planes)


def encode_24(positions: Sequence[Position], boards: Boards) -> NDArray[np.float32]:
    """float32 `[B, 24, 8, 8]` of positions with their history."""
    planes = encode_18(positions, boards, PLANES)
    for row, position in enumerate(positions):
        if position.has_history:
            planes[row, LAST_MOVES:] = unpacked(last_moves(position))
    return planes


def encode_tokens(positions: Sequence[Position], boards: Boards) -> NDArray[np.float32]:
    """float32 `[B, 64, 99]` of positions with their history."""
    packed = _packed([position.board for position in positions], boards)
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
