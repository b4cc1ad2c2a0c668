"""`Boards`: positions as arrays of bitboards, each seen by its side to move, so that all move up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.attacks import Bits

#: Numbers per board: six piece kinds, ours, theirs, castling, en passant, clock, ply.
FIELDS = 12

#: The first fields are bitboards, which are flipped for Black; the last two are counters.
_BITBOARDS = 10

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Boards:
    """B positions; with Black to move the ranks are flipped (square ^ 56) and the colours swapped.

    bits : uint64 `[12, B]`; the properties below name its rows
    black, chess960 : bool `[B]`
    """

    bits: Bits
    black: Flags
    chess960: Flags

    def __len__(self) -> int:
        return len(self.black)

    @property
    def kinds(self) -> Bits:
        """uint64 `[6, B]`, pawns, knights, bishops, rooks, queens and kings of both sides."""
        return np.asarray(self.bits[:6])

    @property
    def ours(self) -> Bits:
        return np.asarray(self.bits[6])

    @property
    def theirs(self) -> Bits:
        return np.asarray(self.bits[7])

    @property
    def castling(self) -> Bits:
        """Rooks of both sides that may still castle."""
        return np.asarray(self.bits[8])

    @property
    def en_passant(self) -> Bits:
        """The en-passant square as the FEN has it, 0 for none."""
        return np.asarray(self.bits[9])

    @property
    def clock(self) -> Bits:
        """Half-moves since the last capture or pawn move."""
        return np.asarray(self.bits[10])

    @property
    def ply(self) -> Bits:
        """Half-moves since the start of the game, by the FEN's move number."""
        return np.asarray(self.bits[11])

    def rows(self, indices: Sequence[int] | NDArray[np.intp]) -> Boards:
        """The positions at these indices, in their order."""
        return Boards(self.bits[:, indices], self.black[indices], self.chess960[indices])

    @classmethod
    def of(cls, boards: Sequence[chess.Board]) -> Boards:
        """From python-chess boards of valid positions."""
        # Without a dtype numpy makes float64 of a list that mixes ints above and below 2**63.
        rows = np.array([_packed(board) for board in boards], dtype=np.uint64).reshape(-1, FIELDS)
        bits = np.ascontiguousarray(rows.T)
        black = np.array([board.turn == chess.BLACK for board in boards], dtype=np.bool_)
        bits[:_BITBOARDS] = np.where(black, bits[:_BITBOARDS].byteswap(), bits[:_BITBOARDS])
        return cls(bits, black, np.array([board.chess960 for board in boards], dtype=np.bool_))

    @classmethod
    def joined(cls, parts: Sequence[Boards]) -> Boards:
        """The positions of all parts, concatenated."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.bits for part in parts], axis=1),
            np.concatenate([part.black for part in parts]),
            np.concatenate([part.chess960 for part in parts]),
        )


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
        min(board.halfmove_clock, _LARGEST),  # a FEN may hold any number
        min(max(board.ply(), 0), _LARGEST),
    )


_LARGEST = 2**63 - 1
