"""What a model makes of held-out positions, through the service's own path: FEN → planes → logits → masked policy."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tqdm import tqdm

from movemask.board.position import Position
from movemask.evaluate import evaluate_positions
from movemask.network.model import Model
from movemask.network.registry import load_registry
from training.samples import Sample

EVALUATED = 256  # positions at once
BATCH = 16  # positions at once when time is taken
BINS = 15  # of the calibration error
MIDDLE = 50  # Maia-1's nets are named by the lowest of their hundred ratings
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """One row of each array for each of `N` samples."""

    rank: NDArray[np.int64]  # of the move played among the legal ones, 0 the likeliest
    surprise: Numbers  # -ln of its probability, nats
    confidence: Numbers  # probability of the likeliest move
    rating: Numbers  # of the side to move
    result: NDArray[np.int64]
    value: Numbers | None  # [N, 3] win, draw, loss
    raw: Numbers  # leakage

    def __len__(self) -> int:
        return len(self.rank)

    def top(self, count: int, rows: NDArray[np.bool_] | slice = slice(None)) -> float:
        """Share of samples whose move was among the `count` likeliest."""
        return float((self.rank[rows] < count).mean())

    def cross_entropy(self, rows: NDArray[np.bool_] | slice = slice(None)) -> float:
        """Mean surprise in nats."""
        return float(self.surprise[rows].mean())

    def errors(self) -> tuple[float, float]:
        """Standard errors of `top(1)` and `cross_entropy()`, samples taken as independent."""
        top, surprise = ((self.rank == 0).std(ddof=1), self.surprise.std(ddof=1)) if len(self) > 1 else (np.nan, np.nan)
        return float(top / len(self) ** 0.5), float(surprise / len(self) ** 0.5)

    def better_than(self, other: Measured) -> tuple[float, float]:
        """By how many nats the cross-entropy is lower than the other's on the same samples, and its standard error."""
        better = other.surprise - self.surprise
        return float(better.mean()), float(better.std(ddof=1) / len(self) ** 0.5) if len(self) > 1 else float("nan")

    def calibration_error(self) -> float:
        """Expected calibration error of the likeliest move (Guo et al. 2017, arXiv:1706.04599)."""
        edge = np.minimum((self.confidence * BINS).astype(int), BINS - 1)
        surplus = np.bincount(edge, weights=self.confidence - (self.rank == 0), minlength=BINS)
        return float(np.abs(surplus).sum() / len(self))

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

    @classmethod
    def of(cls, folder: Path, name: str) -> Nearest:
        """Those of a models folder whose names end with a rating."""
        names = {int(m[1]): f.stem for f in folder.glob("*.toml") if (m := re.search(r"-(\d{3,4})$", f.stem))}
        if not names:
            raise SystemExit(f"{folder}: no net with a rating in its name; movemask models import makes them")
        return cls(name, {rating: loaded(folder / names[rating]) for rating in sorted(names)})

    def chosen(self, ratings: Numbers) -> NDArray[np.int64]:
        """For each rating the place of the network whose hundred ratings are nearest."""
        known = np.array(list(self.models)) + MIDDLE
        return np.asarray(np.abs(ratings[:, None] - known).argmin(axis=1), dtype=np.int64)


def loaded(target: Path) -> Model:
    """The model that a folder has under a name, on one thread."""
    return load_registry(target.parent, target.name, threads=1).get(target.name)


def takes_history(model: Model | Nearest) -> bool:
    """Whether it looks at the moves before a position."""
    models = model.models.values() if isinstance(model, Nearest) else [model]
    return all(one.contract.takes_history for one in models)


def measure(model: Model | Nearest, samples: Sequence[Sample], *, history: bool) -> Measured:
    """Evaluates all samples; without `history` a network that takes it is given the bare position."""
    rating = np.array([sample.elo.self for sample in samples], dtype=np.float64)
    models = list(model.models.values()) if isinstance(model, Nearest) else [model]
    chosen = model.chosen(rating) if isinstance(model, Nearest) else np.zeros(len(samples), dtype=np.int64)
    rank, surprise, confidence, raw = np.empty(len(samples), dtype=np.int64), *np.empty((3, len(samples)))
    value = np.full((len(samples), 3), np.nan)
    for number, one in enumerate(models):
        mine = np.flatnonzero(chosen == number)
        for start in tqdm(range(0, len(mine), EVALUATED), desc=one.name, unit=" batches", leave=False):
            rows = mine[start : start + EVALUATED]
            part = [samples[row] for row in rows]
            positions = [s.position if history else Position(s.position.board.copy(stack=False)) for s in part]
            evaluated = evaluate_positions(one, positions, [s.elo for s in part])
            raw[rows] = evaluated.raw
            if evaluated.value is not None and evaluated.value.shape[1] == 3:
                value[rows] = evaluated.value
            for place, (row, sample) in enumerate(zip(rows.tolist(), part, strict=True)):
                logits = evaluated.unmasked.legal_logits[evaluated.batch.legal(place)]
                played = logits[evaluated.batch.place_of(place, sample.played)]
                total = np.logaddexp.reduce(logits)
                rank[row] = (logits > played).sum()
                surprise[row] = total - played
                confidence[row] = np.exp(logits.max() - total)
    result = np.array([sample.result for sample in samples])
    return Measured(rank, surprise, confidence, rating, result, None if np.isnan(value).any() else value, raw)


def microseconds(
    files: Mapping[str, Path], feeds: Mapping[str, Mapping[str, NDArray[Any]]], rounds: int = 30
) -> dict[str, float]:
    """Median CPU microseconds a position on one thread, the files taken in turn so that all see the same machine."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    sessions = {
        name: ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        for name, file in files.items()
    }
    times: dict[str, list[float]] = {name: [] for name in files}
    for number in range(rounds + 5):
        for name, session in sessions.items():
            before = time.thread_time()
            session.run(None, feeds[name])
            if number >= 5:
                times[name].append(time.thread_time() - before)
    return {
        name: statistics.median(seconds) / len(next(iter(feeds[name].values()))) * 1e6
        for name, seconds in times.items()
    }
