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

from collections.abc import Sequence
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
_LONGEST_CLOCK = 1_000  # a FEN may hold any number; the network must get a finite one
_ALL = 0xFFFF_FFFF_FFFF_FFFF
_START = chess.Board()


class HistoryFill(Enum):
    """What stands in for positions before the oldest known one; the names are lc0's."""

    NO = "no"  # zeros
    FEN_ONLY = "fen_only"  # the oldest known position, but zeros if that is the start position
    ALWAYS = "always"  # the oldest known position, whatever it is


def encode_all(positions: Sequence[Position], fill: HistoryFill = HistoryFill.FEN_ONLY) -> NDArray[np.float32]:
    """float32 `[B, 112, 8, 8]` of positions with the games that led to them, made in one array."""
    # The dtype is said: numpy makes a float64 of a list that mixes ints above and below 2**63.
    blocks = [_blocks(position, fill) for position in positions]
    newest = np.array([block[0] for block in blocks], dtype=np.uint64).reshape(-1, 1, _BLOCK)
    oldest = np.array([block[-1] for block in blocks], dtype=np.uint64).reshape(-1, 1, _BLOCK)
    packed = np.concatenate([newest, np.repeat(oldest, BLOCKS - 1, axis=1)], axis=1)
    for row, own in enumerate(blocks):
        if len(own) > 2:
            packed[row, 1 : len(own) - 1] = np.array(own[1:-1], dtype=np.uint64)
    boards = [position.board for position in positions]
    black = np.array([board.turn == chess.BLACK for board in boards], dtype=np.bool_)
    packed[black] = mirrored(packed[black])
    planes = np.empty((len(positions), PLANES, 8, 8), dtype=np.float32)
    planes[:, : BLOCKS * _BLOCK] = unpacked(packed.reshape(-1, BLOCKS * _BLOCK))
    rest = np.array([_rest(board) for board in boards], dtype=np.float32).reshape(-1, PLANES - BLOCKS * _BLOCK, 1, 1)
    planes[:, BLOCKS * _BLOCK :] = rest
    return planes


def _blocks(position: Position, fill: HistoryFill) -> list[list[int]]:
    """The known blocks, newest first, then the one that stands for all that are not known, if any is not."""
    board = position.board
    blocks = []
    oldest = board
    for oldest, repeated in position.history(BLOCKS):
        blocks.append(_block(oldest, board.turn, repeated))
    if len(blocks) < BLOCKS:
        blocks.append(_earlier_block(oldest, board.turn) if _fills(oldest, fill) else [0] * _BLOCK)
    return blocks


def _rest(board: chess.Board) -> tuple[float, ...]:
    """Planes 104 to 111, each of one number."""
    ours, theirs = board.turn, not board.turn
    rights: tuple[bool, ...] = (False,) * 4
    if board.castling_rights:
        rights = (
            board.has_queenside_castling_rights(ours),
            board.has_kingside_castling_rights(ours),
            board.has_queenside_castling_rights(theirs),
            board.has_kingside_castling_rights(theirs),
        )
    return (
        *rights,
        board.turn == chess.BLACK,
        min(board.halfmove_clock, _LONGEST_CLOCK),
        0.0,
        1.0,
    )


def _block(board: chess.Board, us: chess.Color, repeated: bool) -> list[int]:
    pieces = piece_bitboards(board)
    if board.turn != us:
        pieces = pieces[6:] + pieces[:6]
    return [*pieces, _ALL if repeated else 0]


def _fills(oldest: chess.Board, fill: HistoryFill) -> bool:
    if fill is HistoryFill.FEN_ONLY:
        at_start = oldest.occupied == _START.occupied and oldest.board_fen() == _START.board_fen()
        return not (oldest.turn == chess.WHITE and at_start)
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
