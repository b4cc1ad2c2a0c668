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

All blocks are seen by the side to move *now*: with Black to move the ranks are flipped (square ^ 56) and the
colours swapped.
"""

from __future__ import annotations

from enum import Enum

import chess
import numpy as np
from numpy.typing import NDArray

from service.encoding.bitboards import mirrored, piece_bitboards, unpacked
from service.encoding.position import Position

PLANES = 112
BLOCKS = 8
_BLOCK = 13
_REPEATED = 12
_OUR_PAWNS, _THEIR_PAWNS = 0, 6
_CASTLING, _BLACK, _RULE50, _ONES = 104, 108, 109, 111
_LONGEST_CLOCK = 1_000  # a FEN may hold any number; the network must get a finite one
_ALL = 0xFFFF_FFFF_FFFF_FFFF
_START = chess.Board()


class HistoryFill(Enum):
    """What stands in for positions before the oldest known one; the names are lc0's."""

    NO = "no"  # zeros
    FEN_ONLY = "fen_only"  # the oldest known position, but zeros if that is the start position
    ALWAYS = "always"  # the oldest known position, whatever it is


def encode(position: Position, fill: HistoryFill = HistoryFill.FEN_ONLY) -> NDArray[np.float32]:
    """float32 `[112, 8, 8]` of one position with the game that led to it."""
    board = position.board
    packed = np.zeros(BLOCKS * _BLOCK, dtype=np.uint64)
    block = 0
    oldest = board
    for oldest, repeated in position.history(BLOCKS):
        packed[block * _BLOCK : (block + 1) * _BLOCK] = _block(oldest, board.turn, repeated)
        block += 1
    if block < BLOCKS and _fills(oldest, fill):
        # The dtype is said before tiling: numpy makes a float64 of a list that mixes ints above and below 2**63.
        earlier = np.array(_earlier_block(oldest, board.turn), dtype=np.uint64)
        packed[block * _BLOCK :] = np.tile(earlier, BLOCKS - block)
    if board.turn == chess.BLACK:
        packed = mirrored(packed)
    planes = np.zeros((PLANES, 8, 8), dtype=np.float32)
    planes[: BLOCKS * _BLOCK] = unpacked(packed)
    for offset, side in ((0, board.turn), (2, not board.turn)):
        planes[_CASTLING + offset] = board.has_queenside_castling_rights(side)
        planes[_CASTLING + offset + 1] = board.has_kingside_castling_rights(side)
    planes[_BLACK] = board.turn == chess.BLACK
    planes[_RULE50] = min(board.halfmove_clock, _LONGEST_CLOCK)
    planes[_ONES] = 1.0
    return planes


def _block(board: chess.Board, us: chess.Color, repeated: bool) -> list[int]:
    pieces = piece_bitboards(board)
    if board.turn != us:
        pieces = pieces[6:] + pieces[:6]
    return [*pieces, _ALL if repeated else 0]


def _fills(oldest: chess.Board, fill: HistoryFill) -> bool:
    if fill is HistoryFill.FEN_ONLY:
        return not (oldest.turn == chess.WHITE and oldest.board_fen() == _START.board_fen())
    return fill is HistoryFill.ALWAYS


def _earlier_block(oldest: chess.Board, us: chess.Color) -> list[int]:
    """The block that stands before the oldest known position: itself, with a double-pushed pawn put back.

    lc0 does so wherever the FEN has an en-passant square, capture or not: that much of the past is known.
    """
    block = _block(oldest, us, repeated=False)
    if oldest.ep_square is not None:
        pusher = not oldest.turn
        step = 8 if pusher == chess.WHITE else -8
        landed, start = oldest.ep_square + step, oldest.ep_square - step
        pawns = _OUR_PAWNS if pusher == us else _THEIR_PAWNS
        block[pawns] ^= chess.BB_SQUARES[landed] | chess.BB_SQUARES[start]
    return block
