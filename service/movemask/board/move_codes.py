"""Moves as numbers, so that arrays can hold them: `promotion << 12 | source << 6 | target`, on the board's own squares.

The target is python-chess's: in castling where the king ends, in Chess960 its rook's square.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import chess
import numpy as np
from numpy.typing import NDArray


def code_of(move: chess.Move) -> int:
    """The code of a move."""
    return (move.promotion or 0) << 12 | move.from_square << 6 | move.to_square


def codes_of(moves: Sequence[chess.Move]) -> NDArray[np.intp]:
    """The codes of moves, `[L]`."""
    return np.array([code_of(move) for move in moves], dtype=np.intp)


def moves_of(codes: Iterable[int] | NDArray[np.intp]) -> tuple[chess.Move, ...]:
    """Codes `[L]` → moves."""
    moves = _moves()
    return tuple([moves[code] for code in _plain(codes)])


def uci_of(codes: Iterable[int] | NDArray[np.intp]) -> list[str]:
    """Codes `[L]` → UCI."""
    names = _uci()
    return [names[code] for code in _plain(codes)]


def from_mover(codes: NDArray[np.intp], black: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Codes `[N]` with squares as the side to move sees them → on the board's own squares, or back.

    black : bool `[N]`, whether Black is to move; then the ranks are flipped
    """
    return codes ^ np.where(black, 56 << 6 | 56, 0)


def _plain(codes: Iterable[int] | NDArray[np.intp]) -> Iterable[int]:
    return codes.tolist() if isinstance(codes, np.ndarray) else codes


@cache
def _uci() -> list[str]:
    return [move.uci() for move in _moves()]


@cache
def _moves() -> list[chess.Move]:
    """Every move by its code; shared, since a move is never changed."""
    return [chess.Move(code >> 6 & 63, code & 63, code >> 12 or None) for code in range((chess.QUEEN + 1) << 12)]
