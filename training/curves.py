"""Policies along the ratings, and whether people see that two networks' curves differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from movemask.board.position import Elo, Position
from movemask.evaluate import evaluate_positions
from movemask.games.sweep import RATINGS
from movemask.network.model import Model
from movemask.policy.ragged import Float
from movemask.policy.softmax import softmax

SWEPT = 100  # commonest positions, and as many from later in games

SEEN_LARGEST, SEEN_MEAN = 0.03, 0.003  # differences of a move's probability that people hardly notice


def curves(model: Model, positions: Sequence[Position]) -> list[Float]:
    """The policy of each position by rating, `[ratings, moves]`. Both players have the rating. Raises a ModelError."""
    elos = [Elo(rating, rating) for rating in RATINGS]
    swept = (evaluate_positions(model, [position] * len(elos), elos) for position in positions)
    return [softmax(batch.unmasked.legal_logits, batch.batch.indptr).reshape(len(elos), -1) for batch in swept]


@dataclass(frozen=True, slots=True)
class Apart:
    """How much move probabilities differ between two networks' curves."""

    positions: int
    largest: float
    mean: float

    @property
    def seen(self) -> bool:
        """Whether people can see the difference."""
        return not (self.largest <= SEEN_LARGEST and self.mean <= SEEN_MEAN)


def apart(original: Sequence[Float], other: Sequence[Float]) -> Apart:
    """How far two networks' `curves` of the same positions are apart."""
    differences = np.concatenate([np.abs(a - b).ravel() for a, b in zip(original, other, strict=True)])
    return Apart(len(original), float(differences.max()), float(differences.mean()))
