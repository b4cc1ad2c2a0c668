"""Diagnosis: is a network read as it was trained? It is compared with chance and with other ways to read it.

With chance: a player who moves at random has a perplexity of about 24, and a random choice of slots puts 98 % on
illegal moves. A network that is not far better is read wrongly, whether or not a known mistake explains it.

With other ways (`alternatives`), by paired differences over the positions that an alternative concerns:
- leakage: ln of raw leakage. A network with the right inputs, read from the right slots, puts less on illegal moves.
  Not used with `trained_with_mask`.
- moves: ln of the probability of the moves that people played.
- result: ln of the probability of the game's result, if the network has a value head.
Each difference has a mean and a z, the mean in standard errors. The z of an alternative is the sum of its z over the
square root of their number (Stouffer); from `CLEAR` on it is significant. It becomes advice if the network, read like
this, is far better than chance.

The probes are positions grouped by what they test, with the moves that people played there. `training/probes.py` makes
`probes.jsonl.gz` from lichess games (CC0) outside the training data, except for the openings, which are counted over
many games.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Self

import chess
import numpy as np

from movemask.board.position import Elo, Position
from movemask.errors import ModelError
from movemask.models.alternatives import Alternative, alternatives
from movemask.network.model import Batch, Model
from movemask.numeric.ragged import Float, row_sum
from movemask.numeric.softmax import log_softmax
from movemask.numeric.temperature import fitted_temperature
from movemask.pipeline import evaluate_positions

FILE = "probes.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Played:
    """A position, and how often each move was played there, if known."""

    position: Position
    elo: Elo | None
    played: Mapping[chess.Move, int]

    @property
    def bare(self) -> Self:
        """The same position without the game that led to it."""
        return replace(self, position=Position(self.position.board.copy(stack=False)))

    @property
    def key(self) -> str:
        """Equal for positions that differ only in their counters."""
        return " ".join(self.position.fen.split()[:4])


@dataclass(frozen=True, slots=True)
class Probe(Played):
    """A position of a `group` with its history, and the game's result for the mover: 0 win, 1 draw, 2 loss."""

    group: str
    result: int | None

    @property
    def tags(self) -> frozenset[str]:
        """Its group and further properties."""
        board = self.position.board
        tags = {self.group, "black" if board.turn == chess.BLACK else "white"}
        if any(map(board.is_capture, self.played)):
            tags.add("capture")
        if board.turn == chess.BLACK and self.group in ("opening", "general"):
            tags.add(f"{self.group}_black")
        return frozenset(tags)


@cache
def probes() -> tuple[Probe, ...]:
    """All probes, in the order of the file."""
    packed = resources.files("movemask.models").joinpath(FILE).read_bytes()
    return tuple(_probe(json.loads(line)) for line in gzip.decompress(packed).splitlines())


def commonest(count: int) -> list[Position]:
    """The commonest positions of the probes' openings, commonest first, each with the moves that led there."""
    openings = [probe for probe in probes() if probe.group == "opening"]
    return [probe.position for probe in sorted(openings, key=lambda probe: -sum(probe.played.values()))[:count]]


def _probe(row: dict[str, Any]) -> Probe:
    played = {chess.Move.from_uci(uci): count for uci, count in row["played"].items()}
    elo = Elo(*map(float, row["elo"])) if row.get("elo") else None
    return Probe(Position.read(row["fen"], row["moves"]), elo, played, row["group"], row.get("result"))


CLEAR = 5.0  # standard errors
#: Beyond these limits a network is no better than chance: its cross-entropy on the moves played over a random player's,
#: its mean raw leakage, its mean ln probability of the result (or minus the squared error of a score). Networks that
#: are read rightly stay below 0.7 in every group of positions, and below 0.25 in leakage.
CHANCE, CHANCE_RAW, CHANCE_RESULT, CHANCE_SCORE = 0.8, 0.5, -np.log(3), -0.25
#: The quick look takes every sixth probe of each group. Its mean raw leakage by kind of position, the highest of four
#: networks that are read rightly: movemask-5 and Maia-1 1100, 1500 and 1900. Of the mistakes that `alternatives` plants
#: in them and that raise leakage at all, most raise it more than twentyfold somewhere.
KNOWN_RAW = {
    "castling": 0.0046,
    "promotion": 0.0077,
    "en_passant": 0.0089,
    "capture": 0.0033,
    "white": 0.0061,
    "black": 0.0068,
    "opening": 0.0024,
    "clock": 0.0085,
}
SUSPICIOUS = 4.0  # times KNOWN_RAW
_EVERY = 6
_ENOUGH = 8  # positions of a kind from which on the quick look judges it
_LEAST_LOOKED = 192  # positions looked at, however slow the network is
_BATCH = 64
_FEW = 128  # positions on which a clearly worse alternative is dropped
_CAP = 40.0  # largest |z| of one difference
_VALUE_CHANCE = "value: worse than a forecast that takes every result for equally likely"
_LEAST = 1e-12  # probabilities are raised to this before their logarithm is taken

#: Columns of evidence `[P, 4]`, a row per probe: ln raw leakage; ln probability of the moves played, of the result (NaN
#: if unknown) and of a random legal move.
_EVIDENCE = ("leakage", "moves", "result", "random")
_LEAKAGE, _MOVES, _RESULT, _RANDOM = range(4)

PROBE_KINDS = ("castling", "promotion", "en_passant", "capture", "white", "black", "opening", "clock")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for an alternative. `z` is above 0 if it fits better than the declared contract."""

    name: str
    advice: str
    positions: int
    z: float
    leakage: float | None  # mean difference of ln raw leakage, alternative minus declared: below 0 is better
    moves: float | None  # mean difference of ln probability of the moves played: above 0 is better
    result: float | None  # as `moves`, for the result of the game
    chance: bool = False  # whether the network, read like this, is no better than chance
    impossible: str | None = None  # why the network cannot be read like this at all

    @property
    def verdict(self) -> str:
        """`better`, `chance` (better than declared, but no cure), `worse`, `undecided`, `same` or `impossible`."""
        if self.impossible is not None:
            return "impossible"
        if self.leakage in (0, None) and self.moves in (0, None) and self.result in (0, None):
            return "same"
        if self.z >= CLEAR:
            return "chance" if self.chance else "better"
        return "worse" if self.z <= -CLEAR else "undecided"


@dataclass(frozen=True, slots=True)
class KindFigures:
    """Figures of the declared contract over a group of positions; `chance` says why they are no better than chance."""

    name: str
    positions: int
    raw_mean: float
    raw_max: float
    perplexity: float | None  # of the moves played
    at_random: float | None  # the perplexity of a player who moves at random
    chance: str | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, best alternative first, and the figures of the declared contract by group of positions.

    `chance` says where the declared contract is no better than chance. `unreadable` says why the network cannot be read
    by it at all; then any alternative that works is better.
    """

    findings: tuple[Finding, ...]
    kinds: tuple[KindFigures, ...]
    uses_leakage: bool
    chance: tuple[str, ...] = ()
    unreadable: str | None = None

    @property
    def better(self) -> tuple[Finding, ...]:
        """Alternatives that are clearly better than the declared contract and than chance."""
        return tuple(finding for finding in self.findings if finding.verdict == "better")

    @property
    def misread(self) -> bool:
        """Whether the network is read wrongly; an alternative may cure it or not."""
        return bool(self.better or self.chance or self.unreadable)

    def as_json(self) -> dict[str, Any]:
        """The diagnosis for `json.dumps`; numbers that are not known are None."""
        return {
            "read_wrongly": self.misread,
            "advice": [finding.advice for finding in self.better],
            "no_better_than_chance": list(self.chance),
            "unreadable": self.unreadable,
            "leakage_used": self.uses_leakage,
            "kinds": [asdict(kind) for kind in self.kinds],
            "alternatives": [{**asdict(finding), "verdict": finding.verdict} for finding in self.findings],
        }


@dataclass(frozen=True, slots=True)
class QuickLook:
    """The figures of a network over some probes, and what is wrong with them.

    chance : kinds of position where it is no better than chance
    leaks : kinds of position where it leaks far more than networks that are read rightly
    unreadable : why the network cannot be read by its contract at all
    """

    positions: int
    overall: KindFigures | None = None  # None if it is unreadable
    kinds: tuple[KindFigures, ...] = ()
    chance: tuple[str, ...] = ()
    leaks: tuple[str, ...] = ()
    uses_leakage: bool = True  # false for a network trained with the mask
    unreadable: str | None = None

    @property
    def verdict(self) -> str:
        """`wrong`, `suspicious` or `right`."""
        return "wrong" if self.chance or self.unreadable else "suspicious" if self.leaks else "right"


def quick_look(model: Model, seconds: float = 5.0) -> QuickLook:
    """Evaluates the network by its declared contract alone, on up to 518 probes: about a second for a network of a few
    megabytes. A slow one is stopped after so many `seconds`, but not before 192 probes."""
    groups: dict[str, list[Probe]] = {}
    for probe in probes():
        groups.setdefault(probe.group, []).append(probe)
    placed = [
        (place / len(some), probe)
        for group in groups.values()
        for some in [group[::_EVERY]]
        for place, probe in enumerate(some)
    ]
    some = [probe for _, probe in sorted(placed, key=lambda one: one[0])]  # every part has all groups
    began, parts, looked = time.monotonic(), [], 0
    try:
        while looked < len(some) and (looked < _LEAST_LOOKED or time.monotonic() - began < seconds):
            parts.append(_evidence(model, some[looked : looked + _BATCH]))
            looked += len(parts[-1])
    except ModelError as error:
        return QuickLook(looked, unreadable=str(error))
    evidence = np.concatenate(parts)
    kinds = tuple(_by_kind([probe.tags for probe in some[:looked]], evidence, model))
    judged = [kind for kind in kinds if kind.positions >= _ENOUGH]
    chance = [f"{kind.name}: {kind.chance}" for kind in judged if kind.chance]
    if _value_by_chance(evidence, model):
        chance.append(_VALUE_CHANCE)
    leaks = [
        f"{kind.name}: raw leakage is {kind.raw_mean:.2g}, {kind.raw_mean / KNOWN_RAW[kind.name]:.0f} times that of "
        "networks that are read rightly"
        for kind in judged
        if not model.trained_with_mask and kind.raw_mean > SUSPICIOUS * KNOWN_RAW[kind.name]
    ]
    overall, masked = _figures("all", evidence, model), model.trained_with_mask
    return QuickLook(looked, overall, kinds, tuple(chance), tuple(leaks), not masked)


def diagnose(model: Model, progress: Callable[[str], None] | None = None) -> Diagnosis:
    """Evaluates the network by every alternative and compares. `progress` is called with the name of each."""
    report = progress or (lambda _: None)
    every = probes()
    tags = [probe.tags for probe in every]
    report("as declared")
    try:
        declared = _evidence(model, every)
    except ModelError as error:
        readings = [_finding(model, alternative, every, None) for alternative in alternatives(model.contract)]
        readings.sort(key=lambda one: -np.inf if one.moves is None else one.moves, reverse=True)
        return Diagnosis(tuple(readings), (), not model.trained_with_mask, unreadable=str(error))
    kinds = tuple(_by_kind(tags, declared, model))
    findings = []
    for alternative in _alternatives(model):
        report(alternative.name)
        chosen = [i for i, tags_of_probe in enumerate(tags) if alternative.shows_in in (None, *tags_of_probe)]
        for rows in (chosen[:: -(-len(chosen) // _FEW)], chosen):
            some = [every[i].bare if alternative.bare else every[i] for i in rows]
            base = _evidence(model, some) if alternative.bare else declared[rows]
            found = _finding(model, alternative, some, base)
            if found.z <= -CLEAR or found.positions == len(chosen):
                break
        findings.append(found)
    findings.sort(key=_rank)
    chance = [f"{kind.name}: {kind.chance}" for kind in kinds if kind.chance]
    if _value_by_chance(declared, model):
        chance.append(_VALUE_CHANCE)
    return Diagnosis(tuple(findings), kinds, not model.trained_with_mask, tuple(chance))


def _rank(finding: Finding) -> tuple[int, float]:
    """Sorts clearly better findings first, by the size of the difference, since z is capped."""
    if finding.verdict == "better":
        return 0, -((finding.moves or 0) + (finding.result or 0) - (finding.leakage or 0))
    return (2 if finding.impossible else 1), -finding.z


def _alternatives(model: Model) -> Iterator[Alternative]:
    """The alternatives, for the scale of the network's logits."""
    part = [probe for probe in probes() if probe.group == "general" and len(probe.played) == 1]
    evaluated = evaluate_positions(model, [probe.position for probe in part], [probe.elo for probe in part])
    logits, batch = evaluated.unmasked.logits, evaluated.batch
    played = [batch.place_of(row, next(iter(probe.played))) for row, probe in enumerate(part)]
    low = not np.isfinite(evaluated.unmasked.legal).all()
    scale = 1.0 if low else 1 / fitted_temperature(evaluated.unmasked.legal, batch.indptr, played).temperature
    probabilities = bool((logits >= 0).all() and (logits.sum(axis=1) < 1.01).all())
    return alternatives(model.contract, scale, probabilities=probabilities)


def _finding(model: Model, alternative: Alternative, some: Sequence[Probe], base: Float | None) -> Finding:
    """The result for an alternative. `base` is the evidence of the declared contract, None if it cannot be read."""
    found = Finding(alternative.name, alternative.advice, len(some), -_CAP, None, None, None)
    try:
        evidence = _evidence(alternative.reading(model), some)
    except ModelError as error:
        return replace(found, impossible=str(error))
    value = alternative.judged_by == ("result",) and base is not None
    chance = _value_by_chance(evidence, model) if value else _by_chance(evidence, model) is not None
    if base is None:
        return replace(found, z=_CAP, moves=float(np.nanmean(evidence[:, _MOVES])), chance=chance)
    means: dict[str, float] = {}
    scores = []
    for column, name in enumerate(_EVIDENCE):
        known = _known(evidence[:, column] - base[:, column])
        if name in alternative.judged_by and len(known) and not (column == _LEAKAGE and model.trained_with_mask):
            means[name] = float(known.mean())
            scores.append(_z(known) * (-1 if column == _LEAKAGE else 1))
    nonzero = [score for score in scores if score != 0]
    z = sum(nonzero) / len(nonzero) ** 0.5 if nonzero else 0.0
    leakage, moves, result = map(means.get, _EVIDENCE[:_RANDOM])
    return replace(found, z=z, leakage=leakage, moves=moves, result=result, chance=chance)


def _z(differences: Float) -> float:
    """The mean in standard errors, capped at ±40; 0 without a difference."""
    error = differences.std() / len(differences) ** 0.5
    mean = differences.mean()
    if error == 0:
        return float(np.sign(mean)) * _CAP
    return float(np.clip(mean / error, -_CAP, _CAP))


def _by_chance(evidence: Float, model: Model) -> str | None:
    """Why the policies are no better than chance; None if they are better."""
    played = evidence[np.isfinite(evidence[:, _MOVES])]
    if len(played) and played[:, _MOVES].mean() <= CHANCE * played[:, _RANDOM].mean():
        own, random = _perplexity(played[:, _MOVES]), _perplexity(played[:, _RANDOM])
        return f"the moves played have a perplexity of {own:.3g}, and {random:.3g} for a player who moves at random"
    raw = float(np.exp(evidence[:, _LEAKAGE]).mean())
    if raw >= CHANCE_RAW and not model.trained_with_mask:
        return f"{raw:.0%} of the probability is on illegal moves"
    return None


def _value_by_chance(evidence: Float, model: Model) -> bool:
    value, known = model.contract.outputs.value, _known(evidence[:, _RESULT])
    limit = CHANCE_SCORE if value is not None and value.order == "score" else CHANCE_RESULT
    return bool(len(known)) and float(known.mean()) <= limit


def _known(values: Float) -> Float:
    return values[np.isfinite(values)]


def _perplexity(logs: Float) -> float:
    return float(np.exp(-logs.mean()))


def shares(batch: Batch, known: Sequence[Played]) -> Float:
    """The share of players who chose each legal move, float64 `[N]`; 0 where the moves played are not known."""
    found = np.zeros(len(batch.codes))
    for row, one in enumerate(known):
        for move, count in one.played.items():
            found[batch.indptr[row] + batch.place_of(row, move)] = count / sum(one.played.values())
    return found


def _evidence(model: Model, some: Sequence[Probe]) -> Float:
    """The evidence `[P, 4]` of these probes. Raises the model's error for the first probe that it cannot evaluate."""
    parts = []
    for start in range(0, len(some), _BATCH):
        chunk = some[start : start + _BATCH]
        evaluated = evaluate_positions(model, [probe.position for probe in chunk], [probe.elo for probe in chunk])
        batch = evaluated.batch
        logs = np.maximum(log_softmax(evaluated.unmasked.legal, batch.indptr), np.log(_LEAST))
        known = [bool(probe.played) for probe in chunk]
        moves = np.where(known, row_sum(shares(batch, chunk) * logs, batch.indptr), np.nan)
        ended = np.array([np.nan if probe.result is None else probe.result for probe in chunk])
        leaked = np.log(np.maximum(evaluated.raw, _LEAST))
        parts.append(np.stack([leaked, moves, _results(evaluated.value, ended), -np.log(batch.counts)], axis=1))
    return np.concatenate(parts)


def _results(value: Float | None, results: Float) -> Float:
    """ln probability of each result, or minus the squared error of a score; NaN without a result or a value."""
    if value is None:
        return np.full(len(results), np.nan)
    if value.shape[1] == 1:
        return np.asarray(-((value[:, 0] - (1 - results / 2)) ** 2))
    known = np.isfinite(results)
    picked = value[np.arange(len(value)), np.where(known, results, 0).astype(np.intp)]
    return np.where(known, np.log(np.maximum(picked, _LEAST)), np.nan)


def _by_kind(tags: Sequence[frozenset[str]], evidence: Float, model: Model) -> Iterator[KindFigures]:
    for kind in PROBE_KINDS:
        part = evidence[np.array([kind in tags_of_probe for tags_of_probe in tags])]
        if not len(part):
            continue
        yield _figures(kind, part, model)


def _figures(name: str, part: Float, model: Model) -> KindFigures:
    raw, played = np.exp(part[:, _LEAKAGE]), part[np.isfinite(part[:, _MOVES])]
    own, random = (_perplexity(played[:, column]) if len(played) else None for column in (_MOVES, _RANDOM))
    return KindFigures(name, len(part), float(raw.mean()), float(raw.max()), own, random, _by_chance(part, model))
