"""The check of every answer before it is sent: what it holds itself, from its own moves and numbers."""

from __future__ import annotations

from collections.abc import Sequence

import chess
import numpy as np
from numpy.typing import NDArray

from service.errors import ServedLeakage

#: How far the probabilities of an answer may be from a sum of 1.
SUM_TOLERANCE = 1e-12


def served(
    board: chess.Board, moves: Sequence[chess.Move], probabilities: NDArray[np.float64], abstention: float = 0.0
) -> float:
    """Leakage of a finished answer, from its own moves and numbers: the mass on moves that python-chess will not play.

    Raises ServedLeakage if it is not exactly 0, if a move stands twice, or if the sum, abstention counted, is
    not within 1e-12 of 1.
    """
    leaked = float(sum(p for move, p in zip(moves, probabilities, strict=True) if not board.is_legal(move)))
    if leaked != 0.0:
        raise ServedLeakage(f"the answer for {board.fen()!r} holds {leaked!r} on illegal moves")
    if len(set(moves)) != len(moves):
        raise ServedLeakage(f"the answer for {board.fen()!r} holds a move twice")
    total = float(np.sum(probabilities)) + abstention
    if not abs(total - 1.0) <= SUM_TOLERANCE:
        raise ServedLeakage(f"the answer for {board.fen()!r} sums to {total!r}")
    return leaked
