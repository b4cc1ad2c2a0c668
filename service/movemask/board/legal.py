"""The legal moves of positions, by python-chess or by the vectorised generator: the one place that chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from movemask.board import legality
from movemask.board.boards import Boards
from movemask.board.move_codes import from_mover
from movemask.board.position import Position

Index = NDArray[np.intp]


class Rules(Enum):
    """The generator of legal moves."""

    PYTHON_CHESS = "python-chess"
    VECTORISED = "vectorised"  # several times faster; the tests and a share of answers compare it with python-chess


@dataclass(frozen=True, slots=True)
class LegalMoves:
    """The legal moves of B positions in CSR form.

    codes : intp `[N]`, moves as python-chess writes them (`move_codes`), position by position
    indptr : intp `[B + 1]`
    in_check : bool `[B]`, where the side to move is in check
    """

    codes: Index
    indptr: Index
    in_check: NDArray[np.bool_]


def legal_moves(positions: Sequence[Position], boards: Boards, rules: Rules) -> LegalMoves:
    """The legal moves of every position; `boards` are the same positions as bitboards."""
    return _python_chess(positions) if rules is Rules.PYTHON_CHESS else _vectorised(boards)


def _python_chess(positions: Sequence[Position]) -> LegalMoves:
    codes: list[int] = []
    ends = [0]
    in_check = []
    for position in positions:
        board = position.board
        codes += [
            (move.promotion or 0) << 12 | move.from_square << 6 | move.to_square
            for move in board.generate_legal_moves()
        ]
        ends.append(len(codes))
        in_check.append(board.is_check())
    return LegalMoves(np.array(codes, dtype=np.intp), np.array(ends, dtype=np.intp), np.array(in_check, dtype=np.bool_))


def _vectorised(boards: Boards) -> LegalMoves:
    moves = legality.legal_moves(boards)
    row, code, rook = moves.row, moves.code, moves.rook
    castles = np.flatnonzero((rook >= 0) & boards.chess960[row])
    code[castles] = code[castles] & ~63 | rook[castles]  # python-chess writes e1h1 in Chess960
    code = from_mover(code, boards.black[row])
    order = np.argsort(row, kind="stable")
    indptr = np.searchsorted(row[order], np.arange(len(boards) + 1))
    return LegalMoves(code[order], indptr, moves.in_check)
