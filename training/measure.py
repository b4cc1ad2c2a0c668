"""What a model makes of held-out positions, through the service's own path: FEN → planes → logits → masked policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from movemask.board.boards import Phase
from movemask.board.position import Position
from movemask.network.model import Model
from movemask.numeric.calibration import Calibration, fitted_temperature
from movemask.pipeline import evaluate_positions
from training.nearest import nearest
from training.samples import Sample

BATCH = 256
BINS = 15  # of the reliability diagram
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """One row of each array for each of `N` samples."""

    rank: NDArray[np.int64]  # of the move played among the legal ones, 0 the likeliest
    surprise: Numbers  # -ln of its probability, nats
    confidence: Numbers  # probability of the likeliest move
    rating: Numbers  # of the side to move
    phase: NDArray[np.object_]
    result: NDArray[np.int64]
    value: Numbers | None  # [N, 3] win, draw, loss
    raw: Numbers
    multiplied: Numbers
    temperature: Calibration  # fitted to these samples

    def __len__(self) -> int:
        return len(self.rank)

    def top(self, count: int, rows: NDArray[np.bool_] | slice = slice(None)) -> float:
        """Share of samples whose move was among the `count` likeliest."""
        return float((self.rank[rows] < count).mean())

    def cross_entropy(self, rows: NDArray[np.bool_] | slice = slice(None)) -> float:
        """Mean surprise in nats."""
        return float(self.surprise[rows].mean())

    def reliability(self) -> tuple[Numbers, Numbers, NDArray[np.int64]]:
        """Mean confidence, accuracy and count of the likeliest move, by bins of confidence of equal width."""
        edge = np.minimum((self.confidence * BINS).astype(int), BINS - 1)
        count = np.bincount(edge, minlength=BINS)
        with np.errstate(invalid="ignore"):
            confidence = np.bincount(edge, weights=self.confidence, minlength=BINS) / count
            accuracy = np.bincount(edge, weights=self.rank == 0, minlength=BINS) / count
        return confidence, accuracy, count

    def calibration_error(self) -> float:
        """Expected calibration error of the likeliest move (Guo et al. 2017, arXiv:1706.04599)."""
        confidence, accuracy, count = self.reliability()
        there = count > 0
        return float((np.abs(confidence - accuracy)[there] * count[there]).sum() / count.sum())

    def brier(self) -> tuple[float, float] | None:
        """Brier score of win, draw, loss, and that of always saying how often each came; None without a value."""
        known = self.result >= 0
        if self.value is None or not known.any():
            return None
        outcome = np.eye(3)[self.result[known]]
        score = ((self.value[known] - outcome) ** 2).sum(1).mean()
        return float(score), float(((outcome.mean(0) - outcome) ** 2).sum(1).mean())


@dataclass(frozen=True)
class Nearest:
    """Networks for one rating each, of which each position is given to that nearest to the mover's."""

    name: str
    models: Mapping[int, Model]  # by the lowest of the hundred ratings that each was trained on

    def parts(self, found: Sequence[Sample]) -> Iterator[tuple[Model, NDArray[np.intp]]]:
        """Each network with the places of its samples."""
        known = np.array(list(self.models))
        chosen = nearest(np.array([sample.elo.self for sample in found], dtype=np.float64), known)
        for number, model in enumerate(self.models.values()):
            if (chosen == number).any():
                yield model, np.flatnonzero(chosen == number)

    @property
    def takes_history(self) -> bool:
        """Whether all of them look at the moves before a position."""
        return all(model.contract.takes_history for model in self.models.values())


def measure(model: Model | Nearest, found: Sequence[Sample], *, history: bool) -> Measured:
    """Evaluates all samples; without `history` a network that takes it is given the bare position."""
    parts = list(model.parts(found)) if isinstance(model, Nearest) else [(model, np.arange(len(found)))]
    order = np.argsort(np.concatenate([places for _, places in parts]))  # back to the order of the samples
    batches = [
        (one, [found[place] for place in places[start : start + BATCH]])
        for one, places in parts
        for start in range(0, len(places), BATCH)
    ]
    ranks, surprises, confidences, raws, multiplieds, values = [], [], [], [], [], []
    logits_of, lengths, targets = [], [], []
    for one, part in tqdm(batches, desc=model.name, unit=" batches", leave=False):
        positions = [s.position if history else Position(s.position.board.copy(stack=False)) for s in part]
        evaluated = evaluate_positions(one, positions, [s.elo for s in part])
        batch = evaluated.batch
        raws.append(evaluated.raw)
        multiplieds.append(evaluated.multiplied)
        if evaluated.value is not None:
            values.append(evaluated.value)
        for row, sample in enumerate(part):
            logits = evaluated.unmasked.legal[batch.legal(row)]
            target = batch.place_of(row, sample.played)
            logits_of.append(logits)
            lengths.append(len(logits))
            targets.append(target)
            total = np.logaddexp.reduce(logits)
            ranks.append(int((logits > logits[target]).sum()))
            surprises.append(total - logits[target])
            confidences.append(np.exp(logits.max() - total))
    fit = fitted_temperature(np.concatenate(logits_of), np.cumsum([0, *lengths]), np.array(targets))
    return Measured(
        np.array(ranks)[order],
        np.array(surprises)[order],
        np.array(confidences)[order],
        np.array([sample.elo.self for sample in found]),
        np.array([sample.phase for sample in found], dtype=object),
        np.array([sample.result for sample in found]),
        np.concatenate(values)[order] if values else None,
        np.concatenate(raws)[order],
        np.concatenate(multiplieds)[order],
        fit,
    )


def in_phase(measured: Measured, phase: Phase) -> NDArray[np.bool_]:
    """Which samples are of a phase."""
    return np.array([found is phase for found in measured.phase])
