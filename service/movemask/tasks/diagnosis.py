"""Diagnosis: is a network read as it was trained to be read? Its declared contract against alternatives that differ
in one thing each, on positions of real games.

Evidence, each a paired difference over the positions that an alternative concerns:
- leakage: ln of raw leakage. A network that sees what it was trained to see, and is read from the right slots, puts
  less on illegal moves. Not used with `trained_with_mask`.
- moves: ln of the probability of the moves that people played.
- result: ln of the probability of how the game ended, where there is a value.
A difference is told as its mean and its z, the mean in standard errors; the z of an alternative is their sum over the
root of their number (Stouffer). `CLEAR` is where it speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.move_codes import moves_of
from movemask.board.position import Position
from movemask.errors import ModelError
from movemask.evaluation import evaluate_positions
from movemask.inference.contract import Contract
from movemask.inference.model import Model
from movemask.planes.lc0 import HistoryFill
from movemask.planes.variations import variation, variation_names
from movemask.tasks.probes import Probe, probes
from movemask.vocabulary.vocabularies import vocabulary

CLEAR = 5.0  # standard errors
_BATCH = 64
_CAP = 40.0  # of one z: beyond it, more is not more
_LEAST = 1e-12  # of a probability whose logarithm is taken

Numbers = NDArray[np.float64]

#: For each variation the tag of the probes that it shows in. Gross mistakes show in few.
_SHOWS_IN = {
    "castling_slot": "castling",
    "bare_promotion": "promotion",
    "promotion_order": "promotion",
    "slots_unmirrored": "general_black",
    "slots_rotated": "general_black",
    "planes_unmirrored": "general_black",
    "planes_rotated": "general_black",
    "castling_planes": "rights",
    "clock_scale": "clock",
    "no_side_plane": "opening_black",
    "en_passant_unflipped": "en_passant",
    "no_ones_plane": "general",
    "no_history": "general",
}
KINDS = ("castling", "promotion", "en_passant", "capture", "white", "black", "opening", "clock")


@dataclass(frozen=True, slots=True)
class Alternative:
    """A contract that differs in one thing; `advice` says what to write if it is the right one."""

    name: str
    contract: Contract
    advice: str
    shows_in: str | None
    bare: bool = False  # the positions without their history
    value_only: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of an alternative: `z` above 0 where it fits better than the declared contract."""

    name: str
    advice: str
    positions: int
    z: float
    leakage: float | None  # mean difference of ln raw leakage, alternative minus declared: below 0 is better
    moves: float | None  # mean difference of ln probability of the moves played: above 0 is better
    result: float | None  # the same of the result
    impossible: str | None  # why it cannot be read so at all

    @property
    def verdict(self) -> str:
        """`better`, `worse`, `undecided`, `same` or `impossible`."""
        if self.impossible is not None:
            return "impossible"
        if self.leakage in (0, None) and self.moves in (0, None) and self.result in (0, None):
            return "same"
        return "better" if self.z >= CLEAR else "worse" if self.z <= -CLEAR else "undecided"


@dataclass(frozen=True, slots=True)
class KindFigures:
    """The declared contract over one kind of position."""

    name: str
    positions: int
    raw_mean: float
    raw_max: float
    perplexity: float | None  # of the moves played


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, the alternative that fits best first; and the declared contract by kind of position.

    `unreadable` says why the declared contract cannot be read at all; what can be is then better.
    """

    findings: tuple[Finding, ...]
    kinds: tuple[KindFigures, ...]
    uses_leakage: bool
    unreadable: str | None = None

    @property
    def better(self) -> tuple[Finding, ...]:
        """Alternatives that are clearly better than what is declared."""
        return tuple(finding for finding in self.findings if finding.verdict == "better")


@dataclass(frozen=True, slots=True)
class _Evidence:
    """One row of each for each probe: ln raw leakage, ln probability of the moves and of the result (NaN: none)."""

    leakage: Numbers
    moves: Numbers
    result: Numbers


def diagnose(model: Model, progress: Callable[[str], None] | None = None) -> Diagnosis:
    """Reads the network in every way and compares; `progress` is told what is being read."""
    told = progress or (lambda _: None)
    every = probes()
    tags = [probe.tags for probe in every]
    told("as declared")
    try:
        declared = _evidence(model, every)
    except ModelError as error:
        return _readable(model, str(error))
    findings = []
    for alternative in alternatives(model.contract):
        told(alternative.name)
        chosen = [i for i, own in enumerate(tags) if alternative.shows_in in (None, *own)]
        part = [_bare(every[i]) if alternative.bare else every[i] for i in chosen]
        base = _Evidence(declared.leakage[chosen], declared.moves[chosen], declared.result[chosen])
        if alternative.bare:
            base = _evidence(model, part)
        findings.append(_finding(model, alternative, part, base))
    findings.sort(key=_rank)
    return Diagnosis(tuple(findings), tuple(_by_kind(tags, declared)), not model.trained_with_mask)


def _rank(finding: Finding) -> tuple[int, float]:
    """What is clearly better first, by how much: where several are far beyond doubt, z no longer tells them apart."""
    if finding.verdict == "better":
        return 0, -((finding.moves or 0) + (finding.result or 0) - (finding.leakage or 0))
    return (2 if finding.impossible else 1), -finding.z


def _readable(model: Model, why: str) -> Diagnosis:
    """Where the declared contract cannot be read: which alternatives can, the one that foresees most moves first."""
    found: list[tuple[float, Finding]] = []
    for alternative in alternatives(model.contract):
        read = Model(model.name, model.digest, alternative.contract, model.session)
        try:
            moves = float(np.nanmean(_evidence(read, probes()).moves))
        except ModelError as error:
            lost = Finding(alternative.name, alternative.advice, len(probes()), -_CAP, None, None, None, str(error))
            found.append((-np.inf, lost))
        else:
            better = Finding(alternative.name, alternative.advice, len(probes()), _CAP, None, moves, None, None)
            found.append((moves, better))
    found.sort(key=lambda one: -one[0])
    return Diagnosis(tuple(finding for _, finding in found), (), not model.trained_with_mask, why)


def alternatives(contract: Contract) -> Iterator[Alternative]:
    """Every contract that differs from this one in one thing."""
    terms = contract.contract
    for name in variation_names():
        if variation(name).applies(terms.planes, vocabulary(terms.vocabulary)):
            there = name in terms.variations
            names = tuple(n for n in terms.variations if n != name) if there else (*terms.variations, name)
            changed = contract.model_copy(update={"contract": terms.model_copy(update={"variations": names})})
            verb = "take it out of" if there else "add it to"
            words = f"{'not ' if there else ''}trained with {variation(name).words}"
            advice = f"{words}: {verb} contract.variations"
            yield Alternative(f"without {name}" if there else name, changed, advice, _SHOWS_IN[name])
    if terms.planes == "lc0-112":
        for fill in HistoryFill:
            if fill is not terms.history_fill:
                changed = contract.model_copy(update={"contract": terms.model_copy(update={"history_fill": fill})})
                name = f"history_fill = {fill.value}"
                yield Alternative(name, changed, f'write contract.history_fill = "{fill.value}"', "general", bare=True)
    yield from _value_alternatives(contract)
    inputs = contract.inputs
    if inputs.elo_self is not None and inputs.elo_opponent is not None:
        swapped = inputs.model_copy(update={"elo_self": inputs.elo_opponent, "elo_opponent": inputs.elo_self})
        changed = contract.model_copy(update={"inputs": swapped})
        yield Alternative("ratings swapped", changed, "swap inputs.elo_self and inputs.elo_opponent", "ratings")


def _value_alternatives(contract: Contract) -> Iterator[Alternative]:
    value = contract.outputs.value
    if value is None:
        return

    def changed(**update: object) -> Contract:
        outputs = contract.outputs.model_copy(update={"value": value.model_copy(update=update)})
        return contract.model_copy(update={"outputs": outputs})

    if value.order != "score":
        order = "loss_draw_win" if value.order == "win_draw_loss" else "win_draw_loss"
        advice = f'write outputs.value.order = "{order}"'
        yield Alternative(f"value order {order}", changed(order=order), advice, None, value_only=True)
        softmaxed = not value.softmaxed
        advice = f"write outputs.value.softmaxed = {str(softmaxed).lower()}"
        name = "value as probabilities" if softmaxed else "value as logits"
        yield Alternative(name, changed(softmaxed=softmaxed), advice, None, value_only=True)
    view = "white" if value.point_of_view == "side_to_move" else "side_to_move"
    advice = f'write outputs.value.point_of_view = "{view}"'
    yield Alternative(f"value for {view}", changed(point_of_view=view), advice, "general_black", value_only=True)


def _finding(model: Model, alternative: Alternative, part: Sequence[Probe], base: _Evidence) -> Finding:
    read = Model(model.name, model.digest, alternative.contract, model.session)
    try:
        found = _evidence(read, part)
    except ModelError as error:
        return Finding(alternative.name, alternative.advice, len(part), -_CAP, None, None, None, str(error))
    differences = {
        "leakage": found.leakage - base.leakage if not model.trained_with_mask else np.full(len(part), np.nan),
        "moves": found.moves - base.moves,
        "result": found.result - base.result,
    }
    if alternative.value_only:
        differences = {"result": differences["result"]}
    means: dict[str, float | None] = {"leakage": None, "moves": None, "result": None}
    scores = []
    for name, difference in differences.items():
        known = difference[np.isfinite(difference)]
        if len(known):
            means[name] = float(known.mean())
            scores.append(_z(known) * (-1 if name == "leakage" else 1))
    told = [score for score in scores if score != 0]
    z = sum(told) / len(told) ** 0.5 if told else 0.0
    return Finding(alternative.name, alternative.advice, len(part), z, **means, impossible=None)


def _z(differences: Numbers) -> float:
    """The mean in standard errors, within ±40; 0 where nothing differs."""
    error = differences.std() / len(differences) ** 0.5
    mean = differences.mean()
    if error == 0:
        return float(np.sign(mean)) * _CAP
    return float(np.clip(mean / error, -_CAP, _CAP))


def _evidence(model: Model, part: Sequence[Probe]) -> _Evidence:
    """Raises what the model raises for the first probe that it cannot take."""
    leaked, moves, results = [], [], []
    for start in range(0, len(part), _BATCH):
        some = part[start : start + _BATCH]
        evaluated = evaluate_positions(model, [probe.position for probe in some], [probe.elo for probe in some])
        batch, legal = evaluated.batch, evaluated.unmasked.legal
        leaked.append(np.log(np.maximum(evaluated.raw, _LEAST)))
        for row, probe in enumerate(some):
            own = batch.legal(row)
            logs = legal[own] - np.logaddexp.reduce(legal[own])
            moves.append(_played(dict(zip(moves_of(batch.codes[own]), logs.tolist(), strict=True)), probe))
            results.append(_result(None if evaluated.value is None else evaluated.value[row], probe.result))
    return _Evidence(np.concatenate(leaked), np.array(moves), np.array(results))


def _played(logs: Mapping[chess.Move, float], probe: Probe) -> float:
    """Mean ln probability of the moves played; NaN where none was."""
    total = sum(probe.played.values())
    return sum(count * logs[move] for move, count in probe.played.items()) / total if total else np.nan


def _result(value: Numbers | None, result: int | None) -> float:
    """ln probability of the result, or minus the squared error of a score; NaN where one is missing."""
    if value is None or result is None:
        return np.nan
    if len(value) == 1:
        return -float((value[0] - (1 - result / 2)) ** 2)
    return float(np.log(max(value[result], _LEAST)))


def _bare(probe: Probe) -> Probe:
    return replace(probe, position=Position(probe.position.board.copy(stack=False)))


def _by_kind(tags: Sequence[frozenset[str]], found: _Evidence) -> Iterator[KindFigures]:
    for kind in KINDS:
        rows = np.array([kind in own for own in tags])
        raw, moves = np.exp(found.leakage[rows]), found.moves[rows]
        known = moves[np.isfinite(moves)]
        perplexity = float(np.exp(-known.mean())) if len(known) else None
        yield KindFigures(kind, int(rows.sum()), float(raw.mean()), float(raw.max()), perplexity)
