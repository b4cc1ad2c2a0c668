"""How far a quantised network is from its original, on positions and along the ratings, and how fast it is.

No position is in both sets, calibration and judging. From PGN files, no game is in both either (`sets`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

import numpy as np

from movemask.audit.read import Choice, Skipped, check, read, samples
from movemask.errors import SourceError
from movemask.evaluate import Evaluated, evaluate
from movemask.network.check import expected_score
from movemask.network.model import Array, Batch, Model, Outputs, Session
from movemask.network_tools.diagnosis import FILE, Played, probes, shares
from movemask.policy.distributions import kl_divergence
from movemask.policy.normalisation import Normalisation
from movemask.policy.ragged import Float, padded, row_max, row_sum
from movemask.policy.softmax import softmax

#: Most positions of each set. Judging stops earlier if fewer decide.
CALIBRATION, JUDGED = 512, 65536
#: Fewest positions of each set.
LEAST_CALIBRATION, LEAST_JUDGED = 64, 256

_GAMES = 4000  # most games that are read
_PER_GAME = 32  # most plies that are kept of a game
_EVERY = 5  # every 5th game or line goes to the calibration set
_TRIED = 256  # positions encoded at a time, to see whether the vocabulary has their moves
_SEED = 15


@dataclass(frozen=True, slots=True)
class Sets:
    """The two sets, their source with its number of `games` or lines, and the games that were left out."""

    calibration: Sequence[Played]
    judged: Sequence[Played]
    source: str
    games: int
    skipped: Skipped = field(default_factory=Skipped)


def sets(model: Model, files: Sequence[str]) -> Sets:
    """The sets from files of games or positions, as `movemask audit` reads them; without files, from the probes.

    Raises SourceError for a file that cannot be read, or if the network can read too few positions.
    """
    skipped = Skipped()
    if files:
        groups, source = _of_files(files, skipped), ", ".join(Path(name).name for name in files)
    else:
        groups, source = [[probe] for probe in probes()], f"the shipped probes ({FILE})"
    random.Random(_SEED).shuffle(groups)
    seen: set[str] = set()
    calibration = _distinct(model, _drawn(groups[::_EVERY]), CALIBRATION, seen)
    judged = _distinct(model, _drawn([group for i, group in enumerate(groups) if i % _EVERY]), JUDGED, seen)
    for aim, positions, least in (
        ("calibrate on", calibration, LEAST_CALIBRATION),
        ("judge by", judged, LEAST_JUDGED),
    ):
        if len(positions) < least:
            few = f"{source}: {len(positions)} positions to {aim} are too few, at least {least} are needed"
            raise SourceError(f"{few}; give more games or positions")
    return Sets(calibration, judged, source, len(groups), skipped)


def _of_files(files: Sequence[str], skipped: Skipped) -> list[list[Played]]:
    """The positions of each game or line."""
    check(list(files), None)
    rng = random.Random(_SEED)
    games: dict[tuple[str, int], list[Played]] = {}
    for chunk in chain.from_iterable(read(index, name, None) for index, name in enumerate(files)):
        plies_of: dict[tuple[str, int], list[Played]] = {}
        for sample in samples(chunk, Choice(), skipped):
            played = {} if sample.played is None else {sample.played: 1}
            known = Played(sample.position, sample.elo, played)
            plies_of.setdefault((sample.source, sample.item), []).append(known)
        for game, plies in plies_of.items():
            games[game] = rng.sample(plies, min(_PER_GAME, len(plies)))
        if sum(map(len, games.values())) >= _PER_GAME * _GAMES:
            break
    return list(games.values())


def _drawn(games: Sequence[Sequence[Played]]) -> Iterable[Played]:
    """The first ply of every game, then the second ply of every game, and so on: every game has a share."""
    for number in range(_PER_GAME):
        for game in games:
            if number < len(game):
                yield game[number]


def _distinct(model: Model, positions: Iterable[Played], wanted: int, seen: set[str]) -> list[Played]:
    """Up to `wanted` positions that the network can read and that are not in `seen`. Adds them to `seen`."""
    kept: list[Played] = []
    remaining = iter(positions)
    while len(kept) < wanted and (tried := list(islice(remaining, _TRIED))):
        tried = list({known.key: known for known in reversed(tried) if known.key not in seen}.values())[::-1]
        batch, refused = model.batch([known.position for known in tried], [known.elo for known in tried])
        readable = [known for row, known in enumerate(tried) if row not in refused and batch.counts[row]]
        kept += readable[: wanted - len(kept)]
        seen.update(known.key for known in kept[-len(readable) :])
    return kept


#: The original's first move leads clearly if its probability is this far above the second move's.
CLEAR_LEAD = 0.1
#: Standard errors from which on a figure counts as above its limit. Chance alone reaches 2 once in 44 times.
SURE = 2.0
#: Prefixes of the figures: for positions with their games, and for positions without.
WAYS = ("", "from bare FENs: ")
_POSITIONS_PER_BATCH = 64
_FIRST_LOOK = 4096  # positions; each further look doubles them
_TINIEST = 1e-12  # smallest probability whose logarithm is taken


#: Means over positions: name, format and limit. Figures of human moves are means over the positions with known moves.
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
    """A mean over a number of positions, with its standard error."""

    value: float
    error: float
    positions: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a network differs from its original: the means of FIGURES, and the largest change of a move's probability."""

    positions: int
    largest: float
    means: Mapping[str, Mean]

    @classmethod
    def of(cls, rows: Float) -> Judgement:
        """The judgement from the `differences` of all positions."""
        means = {}
        for name, column in zip(FIGURES, rows.T, strict=False):
            values = column[~np.isnan(column)]
            if len(values):
                means[name] = Mean(float(values.mean()), float(values.std() / np.sqrt(len(values))), len(values))
        return cls(len(rows), float(rows[:, -1].max()), means)

    def exceeded(self) -> Iterator[tuple[str, float]]:
        """Each figure above its limit, and by what factor more positions would rule out chance.

        A factor of at most 1 means that these positions rule it out.
        """
        for key, mean in self.means.items():
            name, form, limit = FIGURES[key]
            if limit is not None and not mean.value <= limit:
                text = f"{name} {mean.value:{form}} ± {mean.error:{form}}, limit {limit:{form}}"
                yield text, (SURE * mean.error / (mean.value - limit)) ** 2


def batches_of(model: Model, known: Sequence[Played]) -> Iterator[Batch]:
    """The positions in batches."""
    for start in range(0, len(known), _POSITIONS_PER_BATCH):
        together = known[start : start + _POSITIONS_PER_BATCH]
        yield model.whole_batch([played.position for played in together], [played.elo for played in together])


def differences(model: Model, other: Model, known: Sequence[Played]) -> Float:
    """The differences of two networks with the same contract. Raises a ModelError.

    A row for each position. A column for each of FIGURES (NaN where unknown), then the largest change of a probability.
    """
    of_batches, start = [], 0
    for batch in batches_of(model, known):
        ours, theirs = (evaluate(network, batch, [Normalisation()] * len(batch)) for network in (model, other))
        for error in (*ours.unusable.values(), *theirs.unusable.values()):
            raise error
        of_batches.append(_differences(batch, ours, theirs, known[start : start + len(batch)]))
        start += len(batch)
    return np.concatenate(of_batches)


def _differences(batch: Batch, original: Evaluated, other: Evaluated, known: Sequence[Played]) -> Float:
    indptr = batch.indptr
    # Both policies are in the order of the slots.
    p, q = (softmax(evaluated.unmasked.legal, indptr) for evaluated in (original, other))
    ordered = np.sort(padded(p, indptr, 0.0), axis=1)
    lead = ordered[:, -1] - (ordered[:, -2] if ordered.shape[1] > 1 else 0.0)
    first, other_first = (padded(policy, indptr, -1.0).argmax(axis=1) + indptr[:-1] for policy in (p, q))
    flips = (first != other_first).astype(np.float64)
    played = shares(batch, known)
    has = row_sum(played, indptr) > 0
    lost = row_sum(played * np.log(np.maximum(p, _TINIEST) / np.maximum(q, _TINIEST)), indptr)
    valued = [evaluated for evaluated in (original, other) if evaluated.value is not None]
    scores = [expected_score(Outputs(evaluated.unmasked.logits, evaluated.value)) for evaluated in valued]
    columns = {
        "kl": kl_divergence(p, q, indptr),
        "flips": flips,
        "clear_flips": np.where(lead >= CLEAR_LEAD, flips, np.nan),
        "lost": np.where(has, lost, np.nan),
        "accuracy": np.where(has, played[first], np.nan),
        "accuracy_change": np.where(has, played[other_first] - played[first], np.nan),
        "raw": original.raw,
        "raw_change": other.raw - original.raw,
        "value": np.abs(np.subtract(*scores)) if scores else np.full(len(batch), np.nan),
    }
    return np.column_stack([*(columns[name] for name in FIGURES), row_max(np.abs(p - q), indptr)])


def judged(
    model: Model, other: Model, known: Sequence[Played], progress: Callable[[str], None]
) -> dict[str, Judgement]:
    """The judgement of another network with the same contract; if it takes history, from bare FENs too.

    More positions are judged only while chance could explain a figure above its limit. Raises a ModelError.
    """
    rows: dict[str, list[Float]] = {way: [] for way in WAYS[: 1 + model.contract.takes_history]}
    start, end = 0, _FIRST_LOOK
    while True:
        progress(f"judging on {min(end, len(known)):,} other positions")
        for way, of_way in rows.items():
            of_way.append(differences(model, other, [played.bare if way else played for played in known[start:end]]))
        judgements = {way: Judgement.of(np.concatenate(of_way)) for way, of_way in rows.items()}
        unsure = any(times > 1 for judgement in judgements.values() for _, times in judgement.exceeded())
        if end >= len(known) or not unsure:
            return judgements
        start, end = end, 2 * end


BATCH = 32
_WARM, _ROUNDS = 5, 100


@dataclass(frozen=True, slots=True)
class Speed:
    """Median microseconds per position on one thread, in batches of BATCH. `ratio` is the median over the rounds."""

    before: float
    after: float
    ratio: float

    @classmethod
    def of(cls, original: Session, other: Session, feeds: Mapping[str, Array], outputs: list[str]) -> Speed:
        """The speed of both. They run in turn, so that other load on the machine slows both alike."""
        times = np.empty((_WARM + _ROUNDS, 2))
        for row in times:
            for place, session in enumerate((original, other)):
                started = time.perf_counter()
                session.run(feeds, outputs)
                row[place] = time.perf_counter() - started
        kept = times[_WARM:]
        before, after = np.median(kept, axis=0) / BATCH * 1e6
        return cls(float(before), float(after), float(np.median(kept[:, 0] / kept[:, 1])))


SEEN_LARGEST, SEEN_MEAN = 0.03, 0.003  # differences of a move's probability that people hardly notice


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
