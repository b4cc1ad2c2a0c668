"""Policies along the ratings, in the positions that people look at first: whether they are smooth, and whether two
networks' are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from movemask.board.position import Elo, Position
from movemask.network.model import Model
from movemask.numeric.ragged import Float
from movemask.numeric.softmax import softmax
from movemask.pipeline import evaluate_positions
from movemask.tasks.diagnosis import probes

RATINGS = range(800, 2501, 100)
SWEPT = 100  # of the commonest positions, and as many from later in games
SEEN_LARGEST, SEEN_MEAN = 0.03, 0.003  # differences of a move's probability that people hardly see

Curves = list[Float]  # of each position, [ratings, moves]


@dataclass(frozen=True, slots=True)
class Apart:
    """How much the probabilities of moves differ between two networks' curves."""

    positions: int
    largest: float
    mean: float

    @property
    def seen(self) -> bool:
        """Whether people can see the difference."""
        return not (self.largest <= SEEN_LARGEST and self.mean <= SEEN_MEAN)


def commonest(count: int) -> list[Position]:
    """The commonest positions of the shipped probes' openings, commonest first, each with the moves that led there."""
    openings = [probe for probe in probes() if probe.group == "opening"]
    return [probe.position for probe in sorted(openings, key=lambda probe: -sum(probe.played.values()))[:count]]


def curves(model: Model, positions: Sequence[Position]) -> Curves:
    """The policy of each position by rating, both players' the same. Raises a ModelError."""
    elos = [Elo(rating, rating) for rating in RATINGS]
    swept = (evaluate_positions(model, [position] * len(elos), elos) for position in positions)
    return [softmax(one.unmasked.legal, one.batch.indptr).astype(np.float64).reshape(len(elos), -1) for one in swept]


def apart(one: Curves, other: Curves) -> Apart:
    """How far two networks' curves of the same positions are apart."""
    differences = np.concatenate([np.abs(a - b).ravel() for a, b in zip(one, other, strict=True)])
    return Apart(len(one), float(differences.max()), float(differences.mean()))
