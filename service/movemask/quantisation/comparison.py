"""How far a quantised network is from its original, also along the ratings in the positions that people look at first,
and which layers may be integers within the limits.

The original's answers are kept. All layers become integers, less those that must be given back to stay within the
limits.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from movemask.board.moves import code_of
from movemask.board.position import Elo, Position
from movemask.network.check import expected_score
from movemask.network.model import Array, Batch, Model, Outputs, Session
from movemask.network.onnx import OnnxSession
from movemask.numeric.distributions import kl_divergence
from movemask.numeric.ragged import Float, padded, row_max
from movemask.numeric.softmax import softmax
from movemask.pipeline import evaluate, evaluate_positions
from movemask.policy import Normalisation
from movemask.quantisation.network import Layer
from movemask.quantisation.positions import Known
from movemask.quantisation.writing import Writer
from movemask.tasks.diagnosis import probes

#: The original's first move leads clearly if it is this far ahead of the second, in probability.
CLEAR_LEAD = 0.1
_AT_ONCE = 64
_ROUNDING = 1e-12  # of a difference of two shares


@dataclass(frozen=True, slots=True)
class Limits:
    """What a quantised network may differ by; 1 is 100 %."""

    kl: float = 0.005  # mean, in nats
    flips: float = 0.05
    clear_flips: float = 0.005
    accuracy: float = 0.003  # lost, of the moves that people played


@dataclass(frozen=True, slots=True)
class Judgement:
    """The differences of a network from its original; 1 is 100 %.

    positions, clear : how many were compared, and in how many the original's first move leads clearly
    kl : mean KL divergence from the original's policy, in nats
    flips, clear_flips : share of positions whose first move is another, of all and of those with a clear lead
    largest : largest change of a move's probability
    played : positions whose played move is known; accuracy before and after are the shares of players who chose the
        network's first move, and the error is the standard error of their difference; None without such positions
    raw : mean raw leakage before and after
    value : mean absolute change of the expected score, 0 to 1; None without a value
    """

    positions: int
    clear: int
    kl: float
    flips: float
    clear_flips: float
    largest: float
    played: int
    accuracy_before: float | None
    accuracy_after: float | None
    accuracy_error: float | None
    raw_before: float
    raw_after: float
    value: float | None

    def excess(self, limits: Limits) -> tuple[str, ...]:
        """The limits that are exceeded, with the figures."""
        found = []
        if not self.kl <= limits.kl:
            found.append(f"mean KL {self.kl:.4f}, limit {limits.kl:g}")
        if not self.flips <= limits.flips:
            found.append(f"top-move flips {self.flips:.2%}, limit {limits.flips:.2%}")
        if not self.clear_flips <= limits.clear_flips:
            found.append(
                f"flips of first moves that led by {CLEAR_LEAD:g} {self.clear_flips:.2%}, "
                f"limit {limits.clear_flips:.2%}"
            )
        if self.accuracy_before is not None and self.accuracy_after is not None:
            lost = self.accuracy_before - self.accuracy_after
            if not lost <= limits.accuracy + _ROUNDING:
                found.append(f"human-move accuracy {100 * lost:.2f} points lower, limit {100 * limits.accuracy:g}")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Answers:
    """A network's answers to all positions: policies float64 `[N]`, raw leakage `[B]`, expected score `[B]` or None."""

    policies: Float
    raw: Float
    score: NDArray[np.float64] | None


def batches_of(model: Model, known: Sequence[Known]) -> list[Batch]:
    """The positions in batches."""
    parts = (known[start : start + _AT_ONCE] for start in range(0, len(known), _AT_ONCE))
    return [model.whole_batch([one.position for one in part], [one.elo for one in part]) for part in parts]


class Comparison:
    """Compares sessions with a model, whose own answers to the positions are computed once."""

    def __init__(self, model: Model, known: Sequence[Known]) -> None:
        self._model = model
        self.batches = batches_of(model, known)
        self._indptr = np.cumsum([0, *np.concatenate([batch.counts for batch in self.batches])])
        self._chose, self._played = self._shares(known)
        self._original = self._answers(model)
        ordered = np.sort(padded(self._original.policies, self._indptr, 0.0), axis=1)
        second = ordered[:, -2] if ordered.shape[1] > 1 else np.zeros(len(ordered))
        self._clear = ordered[:, -1] - second >= CLEAR_LEAD
        self._top = self._first(self._original.policies)

    def judged(self, session: Session) -> Judgement:
        """The judgement of a session that runs the same contract. Raises a ModelError."""
        mine, theirs = self._original, self._answers(replace(self._model, session=session))
        flipped = self._first(theirs.policies) != self._top
        before, after = self._hits(mine), self._hits(theirs)
        value = None if mine.score is None or theirs.score is None else float(np.abs(mine.score - theirs.score).mean())
        return Judgement(
            positions=len(flipped),
            clear=int(self._clear.sum()),
            kl=float(kl_divergence(mine.policies, theirs.policies, self._indptr).mean()),
            flips=float(flipped.mean()),
            clear_flips=float(flipped[self._clear].mean()) if self._clear.any() else 0.0,
            largest=float(row_max(np.abs(mine.policies - theirs.policies), self._indptr).max()),
            played=int(self._played.sum()),
            accuracy_before=None if before is None else float(before.mean()),
            accuracy_after=None if after is None else float(after.mean()),
            accuracy_error=None if before is None or after is None else _standard_error(after - before),
            raw_before=float(mine.raw.mean()),
            raw_after=float(theirs.raw.mean()),
            value=value,
        )

    def _answers(self, model: Model) -> _Answers:
        policies, raws, scores = [], [], []
        for batch in self.batches:
            evaluated = evaluate(model, batch, [Normalisation()] * len(batch))
            for error in evaluated.unusable.values():
                raise error
            # By slots, so that two networks' policies are in the same order.
            policies.append(softmax(evaluated.unmasked.legal, batch.indptr))
            raws.append(evaluated.raw)
            if evaluated.value is not None:
                scores.append(expected_score(Outputs(evaluated.unmasked.logits, evaluated.value)))
        score = np.concatenate(scores) if scores else None
        return _Answers(np.concatenate(policies).astype(np.float64), np.concatenate(raws), score)

    def _shares(self, known: Sequence[Known]) -> tuple[Float, NDArray[np.bool_]]:
        """The share of players who chose each legal move, `[N]`, and the positions where that is known, `[B]`."""
        codes = np.concatenate([batch.codes for batch in self.batches])
        shares, has = np.zeros(len(codes)), np.zeros(len(known), dtype=np.bool_)
        for row, one in enumerate(known):
            total = sum(one.played.values())
            start, end = self._indptr[row], self._indptr[row + 1]
            for move, count in one.played.items():
                shares[start:end][codes[start:end] == code_of(move)] = count / total
            has[row] = total > 0
        return shares, has

    def _first(self, policies: Float) -> NDArray[np.intp]:
        """The place of each position's most probable move in `[N]`."""
        return np.asarray(padded(policies, self._indptr, -1.0).argmax(axis=1) + self._indptr[:-1])

    def _hits(self, answers: _Answers) -> Float | None:
        """The share of players who chose the first move, of each position where that is known; None without any."""
        if not self._played.any():
            return None
        return self._chose[self._first(answers.policies)][self._played]


def _standard_error(differences: Float) -> float:
    return float(differences.std() / np.sqrt(len(differences)))


BATCH = 32
_WARM, _ROUNDS = 5, 100


@dataclass(frozen=True, slots=True)
class Speed:
    """Median microseconds a position on one thread, in batches of BATCH; `ratio` is the median of the rounds' own."""

    before: float
    after: float
    ratio: float


def speed(original: Session, other: Session, feeds: Mapping[str, Array], outputs: list[str]) -> Speed:
    """The speed of both, which run in turn so that whatever else the machine does slows both alike."""
    times = np.empty((_WARM + _ROUNDS, 2))
    for row in times:
        for place, session in enumerate((original, other)):
            started = time.perf_counter()
            session.run(feeds, outputs)
            row[place] = time.perf_counter() - started
    kept = times[_WARM:]
    before, after = np.median(kept, axis=0) / len(next(iter(feeds.values()))) * 1e6
    return Speed(float(before), float(after), float(np.median(kept[:, 0] / kept[:, 1])))


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


#: Share of the limits that the search keeps to: other positions, on which it is judged, give other figures.
_MARGIN = 0.95

Progress = Callable[[str], None]


def selected(
    layers: Sequence[Layer],
    multiplications: Mapping[str, int],
    writer: Writer,
    comparison: Comparison,
    ranking: Comparison,
    limits: Limits,
    progress: Progress,
) -> tuple[list[Layer], list[Layer]]:
    """The most layers that can be integers within the limits on the comparison's positions, and those that stay in
    float, in the order in which they were given back.

    Layers are given back in the order of what each alone costs in KL divergence, for each multiplication; `ranking`
    finds that on fewer positions. One stays, even past the limits.
    """
    # Human accuracy is left to the judgement: on so few positions its noise is larger than its limit.
    target = replace(
        limits,
        kl=_MARGIN * limits.kl,
        flips=_MARGIN * limits.flips,
        clear_flips=_MARGIN * limits.clear_flips,
        accuracy=1.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "candidate.onnx"

        def judged(integers: Sequence[Layer], by: Comparison = comparison) -> Judgement:
            writer.write(integers, file)
            return by.judged(OnnxSession(file, 1))

        left, floats = list(layers), list[Layer]()
        found = judged(left)
        progress(f"all {len(left)} layers: {_line(found)}")
        if not found.excess(target):
            return left, floats
        costs = {}
        for layer in layers:
            costs[layer.name] = judged([layer], ranking).kl / multiplications[layer.name]
            progress(f"{layer.name} alone: KL {costs[layer.name] * multiplications[layer.name]:.5f}")
        for layer in sorted(layers, key=lambda layer: -costs[layer.name])[:-1]:
            left.remove(layer)
            floats.append(layer)
            found = judged(left)
            progress(f"{layer.name} in float: {_line(found)}")
            if not found.excess(target):
                break
    return left, floats


def _line(found: Judgement) -> str:
    return f"KL {found.kl:.5f}, flips {found.flips:.2%}, {found.clear_flips:.2%} of clear first moves"
