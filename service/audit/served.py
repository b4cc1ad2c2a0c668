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
    board: chess.Board,
    moves: Sequence[chess.Move],
    probabilities: NDArray[np.float64],
    abstention: float = 0.0,
    *,
    legal_moves: int | None = None,
) -> float:
    """Leakage of a finished answer, from its own moves and numbers: the mass on moves that python-chess will not play.

    `legal_moves` is how many the policy was made over, before any filter. Raises ServedLeakage if the leakage is not
    exactly 0, if a move stands twice, if python-chess knows of another number of legal moves, or if the sum, abstention
    counted, is not within 1e-12 of 1.
    """
    legal = {_code(move) for move in board.generate_legal_moves()}  # a third of the time of asking for each
    told = [_code(move) for move in moves]
    leaked = float(sum(p for code, p in zip(told, probabilities.tolist(), strict=True) if code not in legal))
    if leaked != 0.0:
        raise ServedLeakage(f"the answer for {board.fen()!r} holds {leaked!r} on illegal moves")
    if len(set(told)) != len(told):
        raise ServedLeakage(f"the answer for {board.fen()!r} holds a move twice")
    if legal_moves is not None and legal_moves != len(legal):
        raise ServedLeakage(f"the answer for {board.fen()!r} is over {legal_moves} moves; {len(legal)} are legal")
    total = float(np.sum(probabilities)) + abstention
    if not abs(total - 1.0) <= SUM_TOLERANCE:
        raise ServedLeakage(f"the answer for {board.fen()!r} sums to {total!r}")
    return leaked


def _code(move: chess.Move) -> int:
    return (move.promotion or 0) << 12 | move.from_square << 6 | move.to_square
