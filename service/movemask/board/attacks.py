"""Attacks of many pieces at once: arrays of squares and of uint64 bitboards, bit `8 * rank + file`, our pawns move up.

Sliders by hyperbola quintessence: of a line's occupied squares `o` and the slider `s`, `o - 2s` flips the squares up to
the first blocker above it; with the bytes swapped, below it. A byte swap does not reverse a rank: ranks use a table.

Source: https://www.chessprogramming.org/Hyperbola_Quintessence (Aleks Peshkov's and Gerd Isenberg's formula).
"""

from __future__ import annotations

import chess
import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]
Squares = NDArray[np.intp]

ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
ONE = np.uint64(1)


def _table(values: list[int]) -> Bits:
    return np.array(values, dtype=np.uint64)


#: By square; index 64 stands for no square.
BIT = _table([*chess.BB_SQUARES, 0])
KNIGHT = _table([*chess.BB_KNIGHT_ATTACKS, 0])
KING = _table([*chess.BB_KING_ATTACKS, 0])
PAWN_UP = _table([*chess.BB_PAWN_ATTACKS[chess.WHITE], 0])
PAWN_DOWN = _table([*chess.BB_PAWN_ATTACKS[chess.BLACK], 0])

#: The squares between two squares, `[64, 64]`.
BETWEEN = _table([chess.between(a, b) for a in chess.SQUARES for b in chess.SQUARES]).reshape(64, 64)

#: The other squares that a rook or a bishop reaches from a square on an empty board.
ROOK_LINES = _table([chess.BB_RANK_ATTACKS[square][0] | chess.BB_FILE_ATTACKS[square][0] for square in chess.SQUARES])
BISHOP_LINES = _table([chess.BB_DIAG_ATTACKS[square][0] for square in chess.SQUARES])


def _diagonals(step: int) -> list[int]:
    """By square, the other squares of its diagonal that rises to the right (9) or to the left (7)."""
    lines = []
    for square in chess.SQUARES:
        line = 0
        for direction in (step, -step):
            here = square
            while 0 <= here + direction < 64 and chess.square_distance(here, here + direction) == 1:
                here += direction
                line |= chess.BB_SQUARES[here]
        lines.append(line)
    return lines


_FILE = _table([chess.BB_FILE_ATTACKS[square][0] for square in chess.SQUARES])
_RISING, _FALLING = _table(_diagonals(9)), _table(_diagonals(7))
_RANK = _table(
    [chess.BB_RANK_ATTACKS[file][occupied & chess.BB_RANK_MASKS[file]] for file in range(8) for occupied in range(256)]
)


def rook(squares: Squares, occupied: Bits) -> Bits:
    """What rooks attack: their squares `[N]` and the occupied squares of each board `[N]` → `[N]`."""
    shift = (squares & 56).astype(np.uint64)
    rank = (occupied >> shift) & np.uint64(0xFF)
    attacked: Bits = _along(_FILE, squares, occupied) | (_RANK[(squares & 7) << 8 | rank.astype(np.intp)] << shift)
    return attacked


def bishop(squares: Squares, occupied: Bits) -> Bits:
    """What bishops attack; arguments as in `rook`."""
    return _along(_RISING, squares, occupied) | _along(_FALLING, squares, occupied)


def lowest(bits: Bits) -> Squares:
    """The lowest square of each bitboard, 64 for an empty one."""
    isolated = bits & (~bits + ONE)
    squares = _DE_BRUIJN_SQUARE[((isolated * _DE_BRUIJN) >> np.uint64(58)).astype(np.intp)]
    return np.asarray(np.where(bits == 0, 64, squares), dtype=np.intp)


def _along(lines: Bits, squares: Squares, occupied: Bits) -> Bits:
    """What sliders attack along one line through each, by hyperbola quintessence."""
    line, slider = lines[squares], BIT[squares]
    blockers = occupied & line
    up = blockers - (slider << ONE)
    down = (blockers.byteswap() - (slider.byteswap() << ONE)).byteswap()
    attacked: Bits = (up ^ down) & line
    return attacked


_DE_BRUIJN = np.uint64(0x03F7_9D71_B4CB_0A89)
_DE_BRUIJN_SQUARE = np.zeros(64, dtype=np.intp)
_DE_BRUIJN_SQUARE[[((1 << square) * 0x03F7_9D71_B4CB_0A89 & (1 << 64) - 1) >> 58 for square in range(64)]] = range(64)
