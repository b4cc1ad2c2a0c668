"""`pgx-119`: AlphaZero's input as pgx's chess observes it, channels last (`pgx/_src/games/chess.py`, `observe`).

Eight blocks of 14 planes, newest first: ours P N B R Q K, theirs P N B R Q K, ones if the position occurred once, ones
if it occurred again. An unknown block has no pieces, and ones in the first of these two planes.

| plane | what |
|---|---|
| 112 | ones if Black is to move |
| 113 | plies since the start of the game / 512 |
| 114, 115 | we may castle O-O-O, O-O |
| 116, 117 | they may castle O-O-O, O-O |
| 118 | half-move clock / 100 |

All as the side to move now sees it: with Black to move the ranks are flipped and the colours swapped. Row 0 is the
8th rank, as on a diagram.
"""

from __future__ import annotations

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import mirrored, piece_bitboards, unpacked
from movemask.board.line import SamePosition
from movemask.board.position import Position

PLANES = 119
BLOCKS = 8
_BLOCK = 14
_ONCE, _AGAIN = 12, 13
_BLACK, _PLIES, _CASTLING, _CLOCK = 112, 113, 114, 118
_LONGEST_GAME, _LONGEST_CLOCK = 512, 100


def encode(position: Position) -> NDArray[np.float32]:
    """float32 `[8, 8, 119]` of one position with the game that led to it."""
    board = position.board
    planes = np.zeros((PLANES, 8, 8), dtype=np.float32)
    planes[_ONCE : BLOCKS * _BLOCK : _BLOCK] = 1.0
    for block, (earlier, repeated) in enumerate(_history(position)):
        pieces = piece_bitboards(earlier)
        if earlier.turn != board.turn:
            pieces = pieces[6:] + pieces[:6]
        packed = np.array(pieces, dtype=np.uint64)
        first = block * _BLOCK
        planes[first : first + 12] = unpacked(packed if board.turn == chess.WHITE else mirrored(packed))
        planes[first + _ONCE], planes[first + _AGAIN] = not repeated, repeated
    planes[_BLACK] = board.turn == chess.BLACK
    planes[_PLIES] = board.ply() / _LONGEST_GAME
    for offset, side in ((0, board.turn), (2, not board.turn)):
        planes[_CASTLING + offset] = board.has_queenside_castling_rights(side)
        planes[_CASTLING + offset + 1] = board.has_kingside_castling_rights(side)
    planes[_CLOCK] = board.halfmove_clock / _LONGEST_CLOCK
    return np.ascontiguousarray(planes[:, ::-1].transpose(1, 2, 0))


def _history(position: Position) -> list[tuple[chess.Board, bool]]:
    """Up to eight boards, newest first, each with whether its position occurs more than once in the game.

    As in pgx, later occurrences count too, and the en-passant square matters even where no capture is possible.
    """
    known = position.history(BLOCKS, SamePosition.BY_SQUARE)
    repeated = {entry.earlier for entry in known}
    return [(entry.board, entry.earlier is not None or entry.ply in repeated) for entry in known]
