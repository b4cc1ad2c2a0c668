"""Moves as numbers, `promotion << 12 | source << 6 | target`, squares as they are on the board: what arrays hold.

A target is python-chess's: where the king ends in castling, in Chess960 its rook's square.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import chess
import numpy as np
from numpy.typing import NDArray


def code_of(move: chess.Move) -> int:
    """The number of a move."""
    return (move.promotion or 0) << 12 | move.from_square << 6 | move.to_square


def codes_of(moves: Sequence[chess.Move]) -> NDArray[np.intp]:
    """Of several, `[L]`."""
    return np.array([code_of(move) for move in moves], dtype=np.intp)


def moves_of(codes: Iterable[int] | NDArray[np.intp]) -> tuple[chess.Move, ...]:
    """Codes `[L]` → moves."""
    known = _moves()
    return tuple([known[code] for code in _plain(codes)])


def names_of(codes: Iterable[int] | NDArray[np.intp]) -> list[str]:
    """Codes `[L]` → UCI."""
    known = _names()
    return [known[code] for code in _plain(codes)]


def _plain(codes: Iterable[int] | NDArray[np.intp]) -> Iterable[int]:
    return codes.tolist() if isinstance(codes, np.ndarray) else codes


@cache
def _names() -> list[str]:
    return [move.uci() for move in _moves()]


@cache
def _moves() -> list[chess.Move]:
    """Every move by its code; made once, for a move is never changed."""
    return [chess.Move(code >> 6 & 63, code & 63, code >> 12 or None) for code in range((chess.QUEEN + 1) << 12)]
