"""`Boards`: positions as arrays of bitboards, each seen by its side to move, so that all move up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import NDArray

from service.encoding.attacks import Bits


@dataclass(frozen=True, slots=True)
class Boards:
    """B positions; with Black to move the ranks are flipped (square ^ 56) and the colours swapped.

    kinds : uint64 `[6, B]`, pawns, knights, bishops, rooks, queens and kings of both sides
    ours, theirs : uint64 `[B]`
    castling : uint64 `[B]`, our rooks that may still castle
    en_passant : uint64 `[B]`, the en-passant square as the FEN has it, 0 for none
    black, chess960 : bool `[B]`
    """

    kinds: Bits
    ours: Bits
    theirs: Bits
    castling: Bits
    en_passant: Bits
    black: NDArray[np.bool_]
    chess960: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ours)

    @classmethod
    def of(cls, boards: Sequence[chess.Board]) -> Boards:
        """From python-chess's boards, of valid positions."""
        # The dtype is said: numpy makes a float64 of a list that mixes ints above and below 2**63.
        packed = np.array([_packed(board) for board in boards], dtype=np.uint64).reshape(-1, 10).T
        black = np.array([board.turn == chess.BLACK for board in boards], dtype=np.bool_)
        packed = np.where(black, packed.byteswap(), packed)
        return cls(
            kinds=packed[:6],
            ours=packed[6],
            theirs=packed[7],
            castling=packed[8],
            en_passant=packed[9],
            black=black,
            chess960=np.array([board.chess960 for board in boards], dtype=np.bool_),
        )


def _packed(board: chess.Board) -> tuple[int, ...]:
    ours = board.occupied_co[board.turn]
    return (
        board.pawns,
        board.knights,
        board.bishops,
        board.rooks,
        board.queens,
        board.kings,
        ours,
        board.occupied_co[not board.turn],
        board.clean_castling_rights() & ours if board.castling_rights else 0,
        chess.BB_SQUARES[board.ep_square] if board.ep_square is not None else 0,
    )
