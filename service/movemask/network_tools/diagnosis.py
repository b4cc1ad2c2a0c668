"""Diagnosis: is a network read as it was trained? It is compared with chance and with other ways to
read it.

Comparison with chance: a player who moves at random has a perplexity of about 24, and a random
choice of slots puts 98 % on illegal moves. A network that is not far better is read wrongly,
whether or not a known mistake explains it.

Comparison with other ways to read it (`alternatives`): paired differences over the positions that
show them.

- leakage: ln of raw leakage. A network read rightly puts less on illegal moves. Not used with
  `trained_with_mask`.
- moves: ln of the probability of the moves that people played.
- result: ln of the probability of the game's result, if the network has a value.

Each difference has a mean and a z, the mean in standard errors. An alternative's z is the sum of
its z over the square root of their number (Stouffer). It is significant from `CLEAR` on. An
alternative becomes advice if the network, read in this way, is also far better than chance.

The probes are positions in groups, each for one rule or phase, with the moves that people played
there. `training/probes.py` makes `probes.jsonl.gz` from lichess games (CC0) outside the training
data. The openings are an exception: they are counted over many games.
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
from movemask.evaluate import evaluate_positions
from movemask.leakage.known import BY_TAG
from movemask.network.model import Batch, Model
from movemask.network_tools.alternatives import Alternative, Reorder, alternatives
from movemask.network_tools.calibration import played_logits
from movemask.policy.ragged import Float, indptr_of, row_sum
from movemask.policy.softmax import log_softmax
from movemask.policy.temperature import fitted_temperature

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
        """Position, turn, castling and en passant, without counters. Equal keys count as the same position."""
        return " ".join(self.position.fen.split()[:4])


@dataclass(frozen=True, slots=True)
class Probe(Played):
    """A position of a `group` with its history, and the game's result for the mover: 0 win, 1 draw, 2 loss."""

    group: str
    result: int | None

    @property
    def tags(self) -> frozenset[str]:
        """The group, the side to move, and `capture` or `GROUP_black` where they apply."""
        board = self.position.board
        tags = {self.group, "black" if board.turn == chess.BLACK else "white"}
        if any(map(board.is_capture, self.played)):
            tags.add("capture")
        if board.turn == chess.BLACK and self.group in ("opening", "general"):
            tags.add(f"{self.group}_black")
        return frozenset(tags)


@cache
def probes() -> tuple[Probe, ...]:
    """Returns all probes, in the order of the file."""
    packed = resources.files("movemask.network_tools").joinpath(FILE).read_bytes()
    return tuple(_probe(json.loads(line)) for line in gzip.decompress(packed).splitlines())


def commonest(count: int) -> list[Position]:
    """Returns the commonest positions of the probes' openings, commonest first.

    Each has the moves that led there.
    """
    openings = [probe for probe in probes() if probe.group == "opening"]
    return [
        probe.position
        for probe in sorted(openings, key=lambda probe: -sum(probe.played.values()))[:count]
    ]


def _probe(row: dict[str, Any]) -> Probe:
    played = {chess.Move.from_uci(uci): count for uci, count in row["played"].items()}
    elo = Elo(*map(float, row["elo"])) if row.get("elo") else None
    return Probe(
        Position.read(row["fen"], row["moves"]), elo, played, row["group"], row.get("result")
    )


#: Standard errors from which on a difference is significant.
CLEAR = 5.0
#: Beyond these limits a network is no better than chance: its cross-entropy on the moves played over a random player's,
#: its mean raw leakage, its mean ln probability of the result (or minus the squared error of a score). Networks that
#: are read rightly stay below 0.7 in every group of positions, and below 0.25 in leakage.
CHANCE, CHANCE_RAW, CHANCE_RESULT, CHANCE_SCORE = 0.8, 0.5, -np.log(3), -0.25
SUSPICIOUS = 4.0  # times BY_TAG
_EVERY = 6
_ENOUGH = 8  # fewest positions of a tag that the quick look judges
_LEAST_LOOKED = 192  # positions, even for a slow network
_BATCH = 64
_FEW = (
    128  # positions of a first comparison; a clearly worse alternative is not compared on the rest
)
_CAP = 40.0  # largest |z| of one difference
_VALUE_CHANCE = "value: worse than a forecast that takes every result for equally likely"
_LEAST = 1e-12  # smallest probability whose logarithm is taken

#: Columns of evidence `[P, 4]`, a row per probe: ln raw leakage; ln probability of the moves played, of the result (NaN
#: if unknown) and of a random legal move.
_EVIDENCE = ("leakage", "moves", "result", "random")
_LEAKAGE, _MOVES, _RESULT, _RANDOM = range(4)

#: Tags that get figures of their own.
REPORTED_TAGS = (
    "castling",
    "promotion",
    "en_passant",
    "capture",
    "white",
    "black",
    "opening",
    "clock",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for an alternative. `z` is positive if it fits better than the declared contract."""

    name: str
    advice: str
    positions: int
    z: float
    # mean difference of ln raw leakage, alternative minus declared: below 0 is better
    leakage: float | None
    moves: float | None  # mean difference of ln probability of the moves played: above 0 is better
    result: float | None  # like `moves`, for the result of the game
    chance: bool = False  # whether the network, read in this way, is no better than chance
    impossible: str | None = None  # why the network cannot be read in this way
    order: Mapping[str, Reorder] | None = None  # by tensor, for a mistake that an order undoes

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
class TagFigures:
    """The declared contract's figures over the positions of a tag. `chance` says why they are no better than chance."""

    name: str
    positions: int
    raw_mean: float
    raw_max: float
    perplexity: float | None  # of the moves played
    at_random: float | None  # the perplexity of a player who moves at random
    chance: str | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, best alternative first, and the declared contract's figures by tag.

    chance : where the declared contract is no better than chance
    unreadable : why the network cannot be read by the contract at all; any alternative that works is then better
    """

    findings: tuple[Finding, ...]
    by_tag: tuple[TagFigures, ...]
    uses_leakage: bool
    chance: tuple[str, ...] = ()
    unreadable: str | None = None

    @property
    def better(self) -> tuple[Finding, ...]:
        """Alternatives that are clearly better than the declared contract and than chance."""
        return tuple(finding for finding in self.findings if finding.verdict == "better")

    @property
    def misread(self) -> bool:
        """Whether the network is read wrongly, with or without an alternative that cures it."""
        return bool(self.better or self.chance or self.unreadable)

    def as_json(self) -> dict[str, Any]:
        """Returns the diagnosis for `json.dumps`. Unknown numbers are None."""
        return {
            "read_wrongly": self.misread,
            "advice": [finding.advice for finding in self.better],
            "no_better_than_chance": list(self.chance),
            "unreadable": self.unreadable,
            "leakage_used": self.uses_leakage,
            "by_tag": [asdict(figures) for figures in self.by_tag],
            "alternatives": [
                {**asdict(finding), "verdict": finding.verdict} for finding in self.findings
            ],
        }


@dataclass(frozen=True, slots=True)
class QuickLook:
    """The figures of a network over some probes, and their faults.

    chance : tags where the network is no better than chance
    leaks : tags where it leaks far more than networks that are read rightly
    unreadable : why the network cannot be read by its contract at all
    """

    positions: int
    overall: TagFigures | None = None  # over all probes; None if the network is unreadable
    by_tag: tuple[TagFigures, ...] = ()
    chance: tuple[str, ...] = ()
    leaks: tuple[str, ...] = ()
    uses_leakage: bool = True  # false for a network trained with the mask
    unreadable: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the look for `json.dumps`."""
        return {
            "verdict": self.verdict,
            "positions": self.positions,
            "no_better_than_chance": list(self.chance),
            "suspicious": list(self.leaks),
            "unreadable": self.unreadable,
            "by_tag": [asdict(figures) for figures in self.by_tag],
        }

    @property
    def verdict(self) -> str:
        """`wrong`, `suspicious` or `right`."""
        return (
            "wrong" if self.chance or self.unreadable else "suspicious" if self.leaks else "right"
        )


def quick_look(model: Model, seconds: float = 5.0) -> QuickLook:
    """Returns the figures of the declared contract on up to 518 probes.

    Takes about a second for a network of a few megabytes. Stops after `seconds`, but not before 192 probes.
    """
    groups: dict[str, list[Probe]] = {}
    for probe in probes():
        groups.setdefault(probe.group, []).append(probe)
    placed = [
        (place / len(sample), probe)
        for group in groups.values()
        for sample in [group[::_EVERY]]
        for place, probe in enumerate(sample)
    ]
    # every stretch has all groups
    spread = [probe for _, probe in sorted(placed, key=lambda item: item[0])]
    began, parts, count = time.monotonic(), [], 0
    try:
        while count < len(spread) and (count < _LEAST_LOOKED or time.monotonic() - began < seconds):
            parts.append(_evidence(model, spread[count : count + _BATCH]))
            count += len(parts[-1])
    except ModelError as error:
        return QuickLook(count, unreadable=str(error))
    evidence = np.concatenate(parts)
    by_tag = tuple(_by_tag([probe.tags for probe in spread[:count]], evidence, model))
    judged = [figures for figures in by_tag if figures.positions >= _ENOUGH]
    chance = [f"{figures.name}: {figures.chance}" for figures in judged if figures.chance]
    if _value_by_chance(evidence, model):
        chance.append(_VALUE_CHANCE)
    leaks = [
        f"{figures.name}: raw leakage is {figures.raw_mean:.2g}, "
        f"{figures.raw_mean / BY_TAG[figures.name]:.0f} times that of networks that are read rightly"
        for figures in judged
        if not model.trained_with_mask and figures.raw_mean > SUSPICIOUS * BY_TAG[figures.name]
    ]
    overall, masked = _figures("all", evidence, model), model.trained_with_mask
    return QuickLook(count, overall, by_tag, tuple(chance), tuple(leaks), not masked)


def diagnose(model: Model, progress: Callable[[str], None] | None = None) -> Diagnosis:
    """Compares every alternative with the declared contract.

    progress : called with each step in words
    """
    report = progress or (lambda _: None)
    every = probes()
    tags = [probe.tags for probe in every]
    report("reading it as declared")
    try:
        declared = _evidence(model, every)
    except ModelError as error:
        ways = _reported(list(alternatives(model.contract)), report)
        readings = [_finding(model, alternative, every, None) for alternative in ways]
        readings.sort(
            key=lambda finding: -np.inf if finding.moves is None else finding.moves, reverse=True
        )
        return Diagnosis(tuple(readings), (), not model.trained_with_mask, unreadable=str(error))
    by_tag = tuple(_by_tag(tags, declared, model))
    findings = []
    for alternative in _reported(list(_alternatives(model)), report):
        chosen = [
            i
            for i, tags_of_probe in enumerate(tags)
            if alternative.shows_in in (None, *tags_of_probe)
        ]
        for rows in (chosen[:: -(-len(chosen) // _FEW)], chosen):
            compared = [every[i].bare if alternative.bare else every[i] for i in rows]
            base = _evidence(model, compared) if alternative.bare else declared[rows]
            finding = _finding(model, alternative, compared, base)
            if finding.z <= -CLEAR or finding.positions == len(chosen):
                break
        findings.append(finding)
    findings.sort(key=_rank)
    chance = [f"{figures.name}: {figures.chance}" for figures in by_tag if figures.chance]
    if _value_by_chance(declared, model):
        chance.append(_VALUE_CHANCE)
    return Diagnosis(tuple(findings), by_tag, not model.trained_with_mask, tuple(chance))


def _reported(ways: Sequence[Alternative], report: Callable[[str], None]) -> Iterator[Alternative]:
    """Yields the alternatives, each reported before it is tried."""
    for number, alternative in enumerate(ways, 1):
        report(f"{number} of {len(ways)} other ways to read it: {alternative.name}")
        yield alternative


def _rank(finding: Finding) -> tuple[int, float]:
    """Returns the sort key of a finding.

    `better` findings come first, the largest difference first, because z is capped. Then come the
    others by z, and impossible findings last.
    """
    if finding.verdict == "better":
        return 0, -((finding.moves or 0) + (finding.result or 0) - (finding.leakage or 0))
    return (2 if finding.impossible else 1), -finding.z


def _alternatives(model: Model) -> Iterator[Alternative]:
    """Returns the alternatives, given the scale of the network's logits."""
    general = [probe for probe in probes() if probe.group == "general" and len(probe.played) == 1]
    evaluated = evaluate_positions(
        model, [probe.position for probe in general], [probe.elo for probe in general]
    )
    logits = evaluated.unmasked.logits
    known = played_logits(evaluated, [next(iter(probe.played)) for probe in general])
    scale = 1.0
    if np.isfinite(evaluated.unmasked.legal_logits).all():
        values, targets = zip(*known, strict=True)
        indptr = indptr_of([len(row) for row in values])
        scale = 1 / fitted_temperature(np.concatenate(values), indptr, targets).temperature
    probabilities = bool((logits >= 0).all() and (logits.sum(axis=1) < 1.01).all())
    return alternatives(model.contract, scale, probabilities=probabilities)


def _finding(
    model: Model, alternative: Alternative, compared: Sequence[Probe], base: Float | None
) -> Finding:
    """Returns the result for an alternative.

    `base` is the evidence of the declared contract; None if it is unreadable.
    """
    order = {
        tensor: change
        for tensor, change in alternative.changes.items()
        if isinstance(change, Reorder)
    }
    finding = Finding(
        alternative.name,
        alternative.advice,
        len(compared),
        -_CAP,
        None,
        None,
        None,
        order=order or None,
    )
    try:
        evidence = _evidence(alternative.reading(model), compared)
    except ModelError as error:
        return replace(finding, impossible=str(error))
    value = alternative.judged_by == ("result",) and base is not None
    chance = _value_by_chance(evidence, model) if value else _by_chance(evidence, model) is not None
    if base is None:
        return replace(finding, z=_CAP, moves=float(np.nanmean(evidence[:, _MOVES])), chance=chance)
    means: dict[str, float] = {}
    scores = []
    for column, name in enumerate(_EVIDENCE):
        known = _known(evidence[:, column] - base[:, column])
        if (
            name in alternative.judged_by
            and len(known)
            and not (column == _LEAKAGE and model.trained_with_mask)
        ):
            means[name] = float(known.mean())
            scores.append(_z(known) * (-1 if column == _LEAKAGE else 1))
    nonzero = [score for score in scores if score != 0]
    z = sum(nonzero) / len(nonzero) ** 0.5 if nonzero else 0.0
    leakage, moves, result = map(means.get, _EVIDENCE[:_RANDOM])
    return replace(finding, z=z, leakage=leakage, moves=moves, result=result, chance=chance)


def _z(differences: Float) -> float:
    """Returns the mean in standard errors, capped at ±40; 0 without a difference."""
    error = differences.std() / len(differences) ** 0.5
    mean = differences.mean()
    if error == 0:
        return float(np.sign(mean)) * _CAP
    return float(np.clip(mean / error, -_CAP, _CAP))


def _by_chance(evidence: Float, model: Model) -> str | None:
    """Returns why the policies are no better than chance; None if they are better."""
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
    """Returns the share of players who chose each legal move, float64 `[N]`; 0 where the moves played are unknown.

    Moves without a slot do not count.
    """
    chosen = np.zeros(len(batch.codes))
    for row, position in enumerate(known):
        places = {batch.find(row, move): count for move, count in position.played.items()}
        places.pop(None, None)
        for place, count in places.items():
            chosen[batch.legal(row)][place] = count / sum(places.values())
    return chosen


def _evidence(model: Model, chosen: Sequence[Probe]) -> Float:
    """Returns the evidence `[P, 4]` of these probes.

    Raises the model's error for the first probe that it cannot evaluate.
    """
    parts = []
    for start in range(0, len(chosen), _BATCH):
        chunk = chosen[start : start + _BATCH]
        evaluated = evaluate_positions(
            model, [probe.position for probe in chunk], [probe.elo for probe in chunk]
        )
        batch = evaluated.batch
        logs = np.maximum(
            log_softmax(evaluated.unmasked.legal_logits, batch.indptr), np.log(_LEAST)
        )
        played = shares(batch, chunk)
        known = row_sum(played, batch.indptr) > 0
        moves = np.where(known, row_sum(played * logs, batch.indptr), np.nan)
        ended = np.array([np.nan if probe.result is None else probe.result for probe in chunk])
        leaked = np.log(np.maximum(evaluated.raw, _LEAST))
        parts.append(
            np.stack(
                [leaked, moves, _results(evaluated.value, ended), -np.log(batch.counts)], axis=1
            )
        )
    return np.concatenate(parts)


def _results(value: Float | None, results: Float) -> Float:
    """Returns the ln probability of each result, or minus the squared error of a score.

    NaN without a result or a value.
    """
    if value is None:
        return np.full(len(results), np.nan)
    if value.shape[1] == 1:
        return np.asarray(-((value[:, 0] - (1 - results / 2)) ** 2))
    known = np.isfinite(results)
    picked = value[np.arange(len(value)), np.where(known, results, 0).astype(np.intp)]
    return np.where(known, np.log(np.maximum(picked, _LEAST)), np.nan)


def _by_tag(tags: Sequence[frozenset[str]], evidence: Float, model: Model) -> Iterator[TagFigures]:
    for tag in REPORTED_TAGS:
        tagged = evidence[np.array([tag in tags_of_probe for tags_of_probe in tags])]
        if not len(tagged):
            continue
        yield _figures(tag, tagged, model)


def _figures(name: str, evidence: Float, model: Model) -> TagFigures:
    raw, played = np.exp(evidence[:, _LEAKAGE]), evidence[np.isfinite(evidence[:, _MOVES])]
    own, random = (
        _perplexity(played[:, column]) if len(played) else None for column in (_MOVES, _RANDOM)
    )
    chance = _by_chance(evidence, model)
    return TagFigures(name, len(evidence), float(raw.mean()), float(raw.max()), own, random, chance)
