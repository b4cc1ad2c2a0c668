"""`Judgement`: the result of judging another program's numbers for a position, by `judge_slots` or `judge_policy`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from movemask.board.position import Position
from movemask.errors import InvalidAudit
from movemask.leakage.causes import Cause
from movemask.leakage.explain import IllegalMass
from movemask.leakage.measure import Figure
from movemask.leakage.patterns import Pattern
from movemask.policy.ragged import Float

#: The kind of leakage of numbers that are probabilities already.
GIVEN = "given"

#: Range of sums that rounding, or a mask after the softmax, can explain. Other sums are not of a distribution.
_LEAST_SUM, _LARGEST_SUM = 1e-6, 1.1
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Judgement:
    """What leaks, how much, to which moves, and why. Slots are named by their own squares.

    figures : by kind. Logits have every kind but `served`; probabilities only `given`, the illegal share of their sum
    total : the sum of the probabilities; None for logits
    top : the move with the highest value
    missing : legal moves with probability 0
    causes : the whole illegal share, by cause
    illegal : the heaviest illegal moves
    patterns : known mistakes that the numbers look like
    """

    figures: Mapping[str, Figure]
    total: float | None
    top: str
    top_is_legal: bool
    missing: tuple[str, ...]
    causes: Mapping[Cause, float]
    illegal: tuple[IllegalMass, ...]
    patterns: tuple[Pattern, ...]


def given_figure(legal: Float, illegal: Float) -> Figure:
    """Returns the figure of probabilities, given for the legal and for the illegal moves.

    `leaked` is the illegal share of the sum; `kl` is the divergence from the renormalised legal part.
    """
    on_legal, on_illegal = float(legal.sum()), float(illegal.sum())
    flipped = bool(illegal.max(initial=0.0) > legal.max(initial=0.0))
    kl = float(np.log1p(on_illegal / on_legal)) if on_legal > 0 else None
    return Figure(on_illegal / (on_legal + on_illegal), flipped, kl)


def checked_sum(name: str, probabilities: Mapping[Any, float]) -> float:
    """Returns the sum of probabilities. Raises InvalidAudit if a probability or the sum is impossible; the message
    names it."""
    for key, p in probabilities.items():
        if not 0 <= p <= 1 + _ROUNDING:
            raise InvalidAudit(f"{name}[{key}]: {p} is not a probability from 0 to 1")
    total = math.fsum(probabilities.values())
    if total == 0:
        raise InvalidAudit(f"{name}: nothing is above 0")
    if not _LEAST_SUM <= total <= _LARGEST_SUM:
        raise InvalidAudit(
            f"{name}: the sum is {total:g}, too far from 1; divide by it (or apply a softmax if these are logits)"
        )
    return total


def no_legal_move(position: Position) -> InvalidAudit:
    """Returns the error for a finished game."""
    return InvalidAudit(f"fen: {position.fen!r} has no legal move; there is nothing to audit")
