"""The check that each answer passes before it is sent: only legal moves, and a sum of 1."""

from __future__ import annotations

from collections.abc import Sequence

from movemask.board.position import Position
from movemask.errors import ServedLeakage

#: Largest distance from 1 of the sum of an answer's probabilities.
SUM_TOLERANCE = 1e-12


def check_answer(
    position: Position,
    legal: Sequence[int],
    codes: Sequence[int],
    probabilities: Sequence[float],
    abstention: float,
) -> None:
    """Raises ServedLeakage unless the answer's moves are legal and distinct, and its probabilities sum to 1.

    Parameters
    ----------
    legal : the legal moves of the position (`board.moves`), before any filter
    codes, probabilities : the moves of the answer and their probabilities
    abstention : mass that softmax_one leaves unassigned; it counts in the sum
    """
    allowed = set(legal)
    if not allowed.issuperset(codes):
        leaked = sum(p for code, p in zip(codes, probabilities, strict=True) if code not in allowed)
        raise ServedLeakage(f"the answer for {position.fen!r} holds {leaked!r} on illegal moves")
    if len(set(codes)) != len(codes):
        raise ServedLeakage(f"the answer for {position.fen!r} holds a move twice")
    total = sum(probabilities) + abstention
    if not abs(total - 1.0) <= SUM_TOLERANCE:
        raise ServedLeakage(f"the answer for {position.fen!r} sums to {total!r}")
