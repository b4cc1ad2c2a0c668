"""`Boards`: positions as bitboards (uint64, bit `8 * rank + file`), seen from the side to move; phases of a game."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.columns import LAST_AXIS, Columns

Bits = NDArray[np.uint64]
Squares = NDArray[np.intp]
Flags = NDArray[np.bool_]


def _table(values: list[int]) -> Bits:
    return np.array(values, dtype=np.uint64)


#: Tables by square. Index 64 means no square.
BIT = _table([*chess.BB_SQUARES, 0])
KNIGHT = _table([*chess.BB_KNIGHT_ATTACKS, 0])
KING = _table([*chess.BB_KING_ATTACKS, 0])
PAWN_UP = _table([*chess.BB_PAWN_ATTACKS[chess.WHITE], 0])

#: The squares between two squares, `[64, 64]`.
BETWEEN = _table([chess.between(a, b) for a in chess.SQUARES for b in chess.SQUARES]).reshape(
    64, 64
)

#: Squares that a rook or a bishop reaches on an empty board, by square.
ROOK_LINES = _table(
    [
        chess.BB_RANK_ATTACKS[square][0] | chess.BB_FILE_ATTACKS[square][0]
        for square in chess.SQUARES
    ]
)
BISHOP_LINES = _table([chess.BB_DIAG_ATTACKS[square][0] for square in chess.SQUARES])


@dataclass(frozen=True, slots=True)
class Boards(Columns):
    """B positions. Where Black is to move, the ranks are flipped (square ^ 56) and the colours swapped.

    bits : uint64 `[12, B]`; the properties below name the rows
    black : bool `[B]`, whether Black is to move
    chess960 : bool `[B]`, whether castling follows Chess960
    """

    bits: Bits = field(metadata=LAST_AXIS)
    black: Flags
    chess960: Flags

    def __len__(self) -> int:
        return len(self.black)

    @property
    def pieces(self) -> Bits:
        """Pawns, knights, bishops, rooks, queens and kings of both sides, uint64 `[6, B]`."""
        return np.asarray(self.bits[:6])

    @property
    def ours(self) -> Bits:
        """Pieces of the side to move."""
        return np.asarray(self.bits[6])

    @property
    def theirs(self) -> Bits:
        """Pieces of the other side."""
        return np.asarray(self.bits[7])

    @property
    def castling(self) -> Bits:
        """Rooks of both sides that may still castle."""
        return np.asarray(self.bits[8])

    @property
    def en_passant(self) -> Bits:
        """The FEN's en-passant square, or 0."""
        return np.asarray(self.bits[9])

    @property
    def clock(self) -> Bits:
        """Half-moves since the last capture or pawn move."""
        return np.asarray(self.bits[10])

    @property
    def ply(self) -> Bits:
        """Half-moves since the start of the game, from the FEN's move number."""
        return np.asarray(self.bits[11])

    @classmethod
    def of(cls, boards: Sequence[chess.Board]) -> Boards:
        """From python-chess boards of valid positions."""
        # Without a dtype, numpy turns a list with ints above and below 2**63 into float64.
        rows = np.array([_packed(board) for board in boards], dtype=np.uint64).reshape(-1, 12)
        bits = np.ascontiguousarray(rows.T)
        black = np.array([board.turn == chess.BLACK for board in boards], dtype=np.bool_)
        # the last two rows are counters
        bits[:10] = np.where(black, mirrored(bits[:10]), bits[:10])
        return cls(bits, black, np.array([board.chess960 for board in boards], dtype=np.bool_))


def _packed(board: chess.Board) -> tuple[int, ...]:
    return (
        board.pawns,
        board.knights,
        board.bishops,
        board.rooks,
        board.queens,
        board.kings,
        board.occupied_co[board.turn],
        board.occupied_co[not board.turn],
        board.clean_castling_rights() if board.castling_rights else 0,
        chess.BB_SQUARES[board.ep_square] if board.ep_square is not None else 0,
        min(board.halfmove_clock, 2**63 - 1),  # a caller's board may hold any number
        min(max(board.ply(), 0), 2**63 - 1),
    )


def mirrored(bitboards: Bits) -> Bits:
    """Returns the bitboards with their ranks flipped (square ^ 56).

    A rank is a byte, so this swaps the bytes.
    """
    return bitboards.byteswap()


def unpacked(bitboards: Bits) -> NDArray[np.uint8]:
    """Bitboards as planes of 0 and 1: uint64 `[..., N]` → uint8 `[..., N, rank, file]`, a1 at `[0, 0]`."""
    rows = np.ascontiguousarray(bitboards, dtype="<u8").view(np.uint8).reshape(*bitboards.shape, 8)
    bits = np.unpackbits(rows, axis=-1, bitorder="little")
    return bits.reshape(*bitboards.shape, 8, 8)


OPENING_PLIES = 20
ENDGAME_PIECES = 6  # queens, rooks, bishops and knights of both sides


class Phase(Enum):
    """The phase of a game."""

    OPENING = "opening"  # the first ten moves of both sides
    MIDDLEGAME = "middlegame"
    ENDGAME = "endgame"  # at most six pieces besides kings and pawns


#: Every phase, in order.
PHASES = tuple(Phase)


def phases_of(boards: Boards) -> Squares:
    """Returns each position's phase as an index into PHASES: intp `[B]`.

    A FEN without a move number counts as move 1.
    """
    knights, bishops, rooks, queens = boards.pieces[1:5]
    pieces = np.bitwise_count(knights | bishops | rooks | queens)
    return np.where(pieces <= ENDGAME_PIECES, 2, np.where(boards.ply < OPENING_PLIES, 0, 1))
