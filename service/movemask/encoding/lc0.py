"""`lc0-112`: the input of lc0's classical networks and of Maia-1 (lc0 `src/neural/encoder.cc`).

Eight blocks of 13 planes, newest first: ours P N B R Q K, theirs P N B R Q K, ones if the position occurred before.

| plane | what |
|---|---|
| 104, 105 | we may castle O-O-O, O-O |
| 106, 107 | they may castle O-O-O, O-O |
| 108 | ones if Black is to move |
| 109 | half-move clock, the raw number |
| 110 | zeros |
| 111 | ones |

All blocks are seen by the side that is to move *now*: with Black to move the ranks are flipped (square ^ 56) and the
colours swapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import Bits, Boards, mirrored, unpacked
from movemask.board.position import Position, SamePosition

PLANES = 112
BLOCKS = 8
_BLOCK = 13
_REPEATED = 12
_THEIR_PAWNS = 6
_OTHER_SIDE = [*range(6, 12), *range(6), 12]
_LONGEST_CLOCK = 1_000  # limit for the network's input; a FEN may hold any number
_ALL = 0xFFFF_FFFF_FFFF_FFFF
_ALL_CASTLING = np.uint64(chess.BB_CORNERS)


class HistoryFill(Enum):
    """How lc0 fills the blocks before the oldest known position. The names are lc0's."""

    NO = "no"  # zeros
    FEN_ONLY = "fen_only"  # the oldest known position; zeros if it is the start position with all castling rights
    ALWAYS = "always"  # the oldest known position, also the start position


def encode_all(
    positions: Sequence[Position], boards: Boards, fill: HistoryFill = HistoryFill.FEN_ONLY
) -> NDArray[np.float32]:
    """Returns the input of positions with their history: float32 `[B, 112, 8, 8]`."""
    blocks = np.empty((len(boards), BLOCKS, _BLOCK), dtype=np.uint64)
    blocks[:, 0] = pieces(boards)
    blocks[:, 1:] = _earlier(boards, fill)[:, None]
    for row, position in enumerate(positions):
        if position.has_history:
            blocks[row] = _history(position, fill)
    planes = np.empty((len(boards), PLANES, 8, 8), dtype=np.float32)
    planes[:, : BLOCKS * _BLOCK] = unpacked(blocks.reshape(-1, BLOCKS * _BLOCK))
    planes[:, BLOCKS * _BLOCK :] = _rest(boards)[:, :, None, None]
    return planes


def pieces(boards: Boards) -> Bits:
    """Returns each position's block `[B, 13]`, with an empty repetition plane."""
    block = np.zeros((_BLOCK, len(boards)), dtype=np.uint64)
    block[:6], block[6:12] = boards.pieces & boards.ours, boards.pieces & boards.theirs
    return block.T


def _earlier(boards: Boards, fill: HistoryFill) -> Bits:
    """Returns the block that fills each position's missing history, `[B, 13]`: its own, with a double-pushed
    pawn put back.

    lc0 puts the pawn back if the FEN has an en-passant square, whether or not a capture is possible.
    """
    block = pieces(boards)
    if fill is HistoryFill.NO:
        return np.zeros_like(block)
    if fill is HistoryFill.FEN_ONLY:  # lc0 compares pieces, side to move and castling rights
        is_start = (
            (block == _START).all(axis=1) & (boards.castling == _ALL_CASTLING) & ~boards.black
        )
        block[is_start] = 0
    pushed_to, pushed_from = boards.en_passant >> np.uint64(8), boards.en_passant << np.uint64(8)
    block[:, _THEIR_PAWNS] ^= pushed_to | pushed_from
    return block


def _history(position: Position, fill: HistoryFill) -> Bits:
    """Returns the eight blocks `[8, 13]` of a position with known history, seen by the side to move now."""
    known = position.history(BLOCKS, SamePosition.BY_LC0)
    boards = Boards.of([entry.board for entry in known])
    blocks = np.concatenate(
        [pieces(boards), np.repeat(_earlier(boards, fill)[-1:], BLOCKS - len(known), axis=0)]
    )
    blocks[: len(known), _REPEATED] = [0 if entry.earlier is None else _ALL for entry in known]
    return seen_now(blocks, len(known))


def seen_now(blocks: Bits, known: int) -> Bits:
    """Blocks `[8, 13]`, newest first, each seen by its own side to move → all seen by the newest one's side to move."""
    theirs = np.arange(len(blocks)).clip(max=known - 1) % 2 == 1  # where the opponent was to move
    blocks[theirs] = mirrored(blocks[theirs][:, _OTHER_SIDE])
    return blocks


def castling(boards: Boards) -> NDArray[np.bool_]:
    """Returns the castling rights, bool `[B, 4]`: ours O-O-O and O-O, theirs O-O-O and O-O."""
    rights = []
    for side in (boards.ours, boards.theirs):
        king, rooks = boards.pieces[5] & side, boards.castling & side
        rights += [rooks & (king - np.uint64(1)) != 0, rooks & ~(king | king - np.uint64(1)) != 0]
    return np.stack(rights, axis=1)


def _rest(boards: Boards) -> NDArray[np.float32]:
    """Returns the numbers that fill planes 104 to 111, `[B, 8]`."""
    numbers = np.zeros((PLANES - BLOCKS * _BLOCK, len(boards)), dtype=np.float32)
    numbers[:4] = castling(boards).T
    numbers[4] = boards.black
    numbers[5] = np.minimum(boards.clock, np.uint64(_LONGEST_CLOCK))
    numbers[7] = 1.0
    return numbers.T


_START = pieces(Boards.of([chess.Board()]))
