"""The check of every answer before it is sent: what it holds itself, from its own moves and numbers."""

from __future__ import annotations

from dataclasses import dataclass

from movemask.board.move_codes import code_of
from movemask.board.position import Position
from movemask.errors import ServedLeakage
from movemask.numeric.ragged import Float, Index

#: How far the probabilities of an answer may be from a sum of 1.
SUM_TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True)
class Told:
    """What an answer holds: moves (`move_codes`) and what each gets, `[L]`, and what is left to no move; and `legal`,
    the moves that the policy was made over, before any filter."""

    position: Position
    codes: Index
    probabilities: Float
    abstention: float
    legal: Index


def served(told: Told, *, judged: bool) -> float:
    """Leakage of a finished answer, from its own moves and numbers: the mass on moves that cannot be played.

    Raises ServedLeakage if it is not exactly 0, a move stands twice, or the sum, abstention counted, is not within
    1e-12 of 1; and, where python-chess is to judge, if it knows of other legal moves.
    """
    legal, codes, probabilities = set(told.legal.tolist()), told.codes.tolist(), told.probabilities.tolist()
    if judged:
        _judge(told.position, legal)
    if not legal.issuperset(codes):
        leaked = sum(p for code, p in zip(codes, probabilities, strict=True) if code not in legal)
        if leaked != 0.0:
            raise ServedLeakage(f"the answer for {told.position.fen!r} holds {leaked!r} on illegal moves")
    if len(set(codes)) != len(codes):
        raise ServedLeakage(f"the answer for {told.position.fen!r} holds a move twice")
    total = sum(probabilities) + told.abstention
    if not abs(total - 1.0) <= SUM_TOLERANCE:
        raise ServedLeakage(f"the answer for {told.position.fen!r} sums to {total!r}")
    return 0.0


def _judge(position: Position, legal: set[int]) -> None:
    """Raises unless these are the legal moves by python-chess."""
    right = {code_of(move) for move in position.board.generate_legal_moves()}
    if right != legal:
        raise ServedLeakage(
            f"the answer for {position.fen!r} is over {len(legal)} moves that are not the {len(right)} of python-chess"
        )
