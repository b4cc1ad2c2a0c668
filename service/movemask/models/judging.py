"""How far a quantised network is from its original, also along the ratings; what chance explains; how fast it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from movemask.models.held_out import Played
from movemask.network.check import expected_score
from movemask.network.model import Array, Batch, Model, Outputs, Session
from movemask.normalisation import Normalisation
from movemask.numeric.distributions import kl_divergence
from movemask.numeric.ragged import Float, padded, row_max, row_sum
from movemask.numeric.softmax import softmax
from movemask.pipeline import Evaluated, evaluate

#: The original's first move leads clearly if it is this far ahead of the second, in probability.
CLEAR_LEAD = 0.1
#: Standard errors by which a figure must be past its limit to count; by chance alone it is once in 44 times.
SURE = 2.0
#: How positions are judged, as it is said before the figures: as they are, or without the games that led to them.
WAYS = ("", "from bare FENs: ")
_AT_ONCE = 64
_FIRST_LOOK = 4096  # positions; then twice as many as before
_TINIEST = 1e-12  # probability


#: Means over positions: what they are called, how they are written, and what they may be at most. Those of human moves
#: are over positions where it is known what people played.
FIGURES: dict[str, tuple[str, str, float | None]] = {
    "kl": ("KL from the original's policy, nats", ".4f", 0.005),
    "flips": ("top-move flips", ".2%", 0.05),
    "clear_flips": (f"flips of first moves that led by {CLEAR_LEAD:g}", ".2%", 0.005),
    "lost": ("human moves' cross-entropy, rise in nats", ".4f", 0.005),
    "accuracy": ("human-move accuracy of the original", ".2%", None),
    "accuracy_change": ("its change", "+.2%", None),
    "raw": ("raw leakage of the original", ".4f", None),
    "raw_change": ("its change", "+.4f", None),
    "value": ("expected score, change up or down", ".4f", None),
}


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over so many positions with its standard error."""

    value: float
    error: float
    positions: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a network differs from its original: means by FIGURES, and the largest change of a move's probability."""

    positions: int
    largest: float
    means: Mapping[str, Mean]

    @classmethod
    def of(cls, found: Float) -> Judgement:
        """The judgement by the `differences` of all positions."""
        means = {}
        for name, column in zip(FIGURES, found.T, strict=False):
            values = column[~np.isnan(column)]
            if len(values):
                means[name] = Mean(float(values.mean()), float(values.std() / np.sqrt(len(values))), len(values))
        return cls(len(found), float(found[:, -1].max()), means)

    def exceeded(self) -> Iterator[tuple[str, float]]:
        """The figures above their limits, and how many times the positions would rule chance out; up to 1, these do."""
        for key, mean in self.means.items():
            name, form, limit = FIGURES[key]
            if limit is not None and not mean.value <= limit:
                text = f"{name} {mean.value:{form}} ± {mean.error:{form}}, limit {limit:{form}}"
                yield text, (SURE * mean.error / (mean.value - limit)) ** 2


def batches_of(model: Model, known: Sequence[Played]) -> Iterator[Batch]:
    """The positions in batches."""
    for start in range(0, len(known), _AT_ONCE):
        part = known[start : start + _AT_ONCE]
        yield model.whole_batch([one.position for one in part], [one.elo for one in part])


def differences(model: Model, other: Model, known: Sequence[Played]) -> Float:
    """How far another network of the same contract is from a model: a row for each position, a column for each of
    FIGURES and one for the largest change of a probability; NaN where there is none. Raises a ModelError."""
    parts, start = [], 0
    for batch in batches_of(model, known):
        one, two = (evaluate(each, batch, [Normalisation()] * len(batch)) for each in (model, other))
        for error in (*one.unusable.values(), *two.unusable.values()):
            raise error
        parts.append(_differences(batch, one, two, known[start : start + len(batch)]))
        start += len(batch)
    return np.concatenate(parts)


def _differences(batch: Batch, one: Evaluated, other: Evaluated, known: Sequence[Played]) -> Float:
    indptr = batch.indptr
    p, q = (softmax(each.unmasked.legal, indptr) for each in (one, other))  # by slots: in the same order
    ordered = np.sort(padded(p, indptr, 0.0), axis=1)
    lead = ordered[:, -1] - (ordered[:, -2] if ordered.shape[1] > 1 else 0.0)
    first, its_first = (padded(each, indptr, -1.0).argmax(axis=1) + indptr[:-1] for each in (p, q))
    flips = (first != its_first).astype(np.float64)
    played = np.zeros(len(p))
    for row, position in enumerate(known):
        for move, count in position.played.items():
            played[indptr[row] + batch.place_of(row, move)] = count / sum(position.played.values())
    has = row_sum(played, indptr) > 0
    lost = row_sum(played * np.log(np.maximum(p, _TINIEST) / np.maximum(q, _TINIEST)), indptr)
    valued = [each for each in (one, other) if each.value is not None]
    scores = [expected_score(Outputs(each.unmasked.logits, each.value)) for each in valued]
    found = {
        "kl": kl_divergence(p, q, indptr),
        "flips": flips,
        "clear_flips": np.where(lead >= CLEAR_LEAD, flips, np.nan),
        "lost": np.where(has, lost, np.nan),
        "accuracy": np.where(has, played[first], np.nan),
        "accuracy_change": np.where(has, played[its_first] - played[first], np.nan),
        "raw": one.raw,
        "raw_change": other.raw - one.raw,
        "value": np.abs(np.subtract(*scores)) if scores else np.full(len(batch), np.nan),
    }
    return np.column_stack([*(found[name] for name in FIGURES), row_max(np.abs(p - q), indptr)])


def judged(
    model: Model, other: Model, known: Sequence[Played], progress: Callable[[str], None]
) -> dict[str, Judgement]:
    """The judgement of another network of the same contract, and from bare FENs that of one that takes history.

    It looks at more positions only while chance could explain a figure above its limit. Raises a ModelError.
    """
    parts: dict[str, list[Float]] = {way: [] for way in WAYS[: 1 + model.contract.takes_history]}
    start, end = 0, _FIRST_LOOK
    while True:
        progress(f"judging on {min(end, len(known)):,} other positions")
        for way, part in parts.items():
            part.append(differences(model, other, [one.bare if way else one for one in known[start:end]]))
        found = {way: Judgement.of(np.concatenate(part)) for way, part in parts.items()}
        unsure = any(times > 1 for one in found.values() for _, times in one.exceeded())
        if end >= len(known) or not unsure:
            return found
        start, end = end, 2 * end


BATCH = 32
_WARM, _ROUNDS = 5, 100


@dataclass(frozen=True, slots=True)
class Speed:
    """Median microseconds a position on one thread, in batches of BATCH; `ratio` is the median of the rounds' own."""

    before: float
    after: float
    ratio: float

    @classmethod
    def of(cls, original: Session, other: Session, feeds: Mapping[str, Array], outputs: list[str]) -> Speed:
        """The speed of both, which run in turn so that whatever else the machine does slows both alike."""
        times = np.empty((_WARM + _ROUNDS, 2))
        for row in times:
            for place, session in enumerate((original, other)):
                started = time.perf_counter()
                session.run(feeds, outputs)
                row[place] = time.perf_counter() - started
        kept = times[_WARM:]
        before, after = np.median(kept, axis=0) / BATCH * 1e6
        return cls(float(before), float(after), float(np.median(kept[:, 0] / kept[:, 1])))


SEEN_LARGEST, SEEN_MEAN = 0.03, 0.003  # differences of a move's probability that people hardly see


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


def apart(one: Sequence[Float], other: Sequence[Float]) -> Apart:
    """How far two networks' `curves` of the same positions are apart."""
    differences = np.concatenate([np.abs(a - b).ravel() for a, b in zip(one, other, strict=True)])
    return Apart(len(one), float(differences.max()), float(differences.mean()))
