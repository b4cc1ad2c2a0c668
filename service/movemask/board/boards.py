"""`Boards`: positions as arrays of bitboards, each seen by its side to move, so that all move up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.attacks import Bits

#: What is kept of each board: six kinds, ours, theirs, castling, en passant, clock, ply.
FIELDS = 12

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Boards:
    """B positions; with Black to move the ranks are flipped (square ^ 56) and the colours swapped.

    bits : uint64 `[12, B]`, which the properties below name
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

    def rows(self, places: Sequence[int] | NDArray[np.intp]) -> Boards:
        """Some of the positions, in the order asked for."""
        return Boards(self.bits[:, places], self.black[places], self.chess960[places])

    @classmethod
    def of(cls, boards: Sequence[chess.Board]) -> Boards:
        """From python-chess's boards, of valid positions."""
        # The dtype is said: numpy makes a float64 of a list that mixes ints above and below 2**63.
        bits = np.array([_packed(board) for board in boards], dtype=np.uint64).reshape(-1, FIELDS).T
        black = np.array([board.turn == chess.BLACK for board in boards], dtype=np.bool_)
        return cls.seen(bits, black, np.array([board.chess960 for board in boards], dtype=np.bool_))

    @classmethod
    def seen(cls, bits: Bits, black: Flags, chess960: Flags) -> Boards:
        """From fields on the squares as they are."""
        turned = np.empty(bits.shape, dtype=np.uint64)
        turned[:10] = np.where(black, bits[:10].byteswap(), bits[:10])
        turned[10:] = bits[10:]
        return cls(turned, black, chess960)

    @classmethod
    def joined(cls, parts: Sequence[Boards]) -> Boards:
        """The positions of all, one after the other."""
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
