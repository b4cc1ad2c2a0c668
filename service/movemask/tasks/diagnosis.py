"""Diagnosis: is a network read as it was trained? Compares its declared contract with alternatives that differ in one
thing each, on positions of real games.

Evidence, each a paired difference over the positions that an alternative concerns:
- leakage: ln of raw leakage. A network with the right inputs, read from the right slots, puts less on illegal moves.
  Not used with `trained_with_mask`.
- moves: ln of the probability of the moves that people played.
- result: ln of the probability of the game's result, if the network has a value head.
Each difference has a mean and a z, the mean in standard errors. The z of an alternative is the sum of these over the
square root of their number (Stouffer); from `CLEAR` on it is significant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.moves import moves_of
from movemask.board.position import Position
from movemask.encoding.lc0 import HistoryFill
from movemask.encoding.variations import variation, variation_names
from movemask.encoding.vocabularies import vocabulary
from movemask.errors import ModelError
from movemask.network.contract import Contract
from movemask.network.model import Model
from movemask.pipeline import evaluate_positions
from movemask.tasks.probes import Probe, probes

CLEAR = 5.0  # standard errors
_BATCH = 64
_CAP = 40.0  # largest |z| of one kind of evidence
_LEAST = 1e-12  # probabilities are raised to this before their logarithm is taken

Numbers = NDArray[np.float64]

#: For each variation the tag of the probes that reveal it; few are enough for gross mistakes.
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
    """A contract that differs in one thing; `advice` says what to write if it fits better."""

    name: str
    contract: Contract
    advice: str
    shows_in: str | None
    bare: bool = False  # evaluated on positions without their history
    value_only: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for an alternative: `z` is above 0 if it fits better than the declared contract."""

    name: str
    advice: str
    positions: int
    z: float
    leakage: float | None  # mean difference of ln raw leakage, alternative minus declared: below 0 is better
    moves: float | None  # mean difference of ln probability of the moves played: above 0 is better
    result: float | None  # as `moves`, for the result of the game
    impossible: str | None  # why the network cannot be read like this at all

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
    """Figures of the declared contract over one kind of position."""

    name: str
    positions: int
    raw_mean: float
    raw_max: float
    perplexity: float | None  # of the moves played


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, best alternative first, and the figures of the declared contract by kind of position.

    `unreadable` says why the network cannot be read by its declared contract; any alternative that works is then
    better.
    """

    findings: tuple[Finding, ...]
    kinds: tuple[KindFigures, ...]
    uses_leakage: bool
    unreadable: str | None = None

    @property
    def better(self) -> tuple[Finding, ...]:
        """Alternatives that are clearly better than the declared contract."""
        return tuple(finding for finding in self.findings if finding.verdict == "better")


@dataclass(frozen=True, slots=True)
class _Evidence:
    """For each probe `[P]`: ln raw leakage, ln probability of the moves, and of the result (NaN: none)."""

    leakage: Numbers
    moves: Numbers
    result: Numbers


def diagnose(model: Model, progress: Callable[[str], None] | None = None) -> Diagnosis:
    """Evaluates the network by every alternative contract and compares; `progress` gets the name of each."""
    report = progress or (lambda _: None)
    every = probes()
    tags = [probe.tags for probe in every]
    report("as declared")
    try:
        declared = _evidence(model, every)
    except ModelError as error:
        return _readable(model, str(error))
    findings = []
    for alternative in alternatives(model.contract):
        report(alternative.name)
        chosen = [i for i, tags_of_probe in enumerate(tags) if alternative.shows_in in (None, *tags_of_probe)]
        part = [_bare(every[i]) if alternative.bare else every[i] for i in chosen]
        base = _Evidence(declared.leakage[chosen], declared.moves[chosen], declared.result[chosen])
        if alternative.bare:
            base = _evidence(model, part)
        findings.append(_finding(model, alternative, part, base))
    findings.sort(key=_rank)
    return Diagnosis(tuple(findings), tuple(_by_kind(tags, declared)), not model.trained_with_mask)


def _rank(finding: Finding) -> tuple[int, float]:
    """Clearly better findings first, by the size of the difference: z is capped and does not order them."""
    if finding.verdict == "better":
        return 0, -((finding.moves or 0) + (finding.result or 0) - (finding.leakage or 0))
    return (2 if finding.impossible else 1), -finding.z


def _readable(model: Model, why: str) -> Diagnosis:
    """The diagnosis where the declared contract fails: the alternatives that work, best prediction of moves first."""
    ranked: list[tuple[float, Finding]] = []
    for alternative in alternatives(model.contract):
        variant = Model(model.name, model.digest, alternative.contract, model.session)
        try:
            moves = float(np.nanmean(_evidence(variant, probes()).moves))
        except ModelError as error:
            failed = Finding(alternative.name, alternative.advice, len(probes()), -_CAP, None, None, None, str(error))
            ranked.append((-np.inf, failed))
        else:
            better = Finding(alternative.name, alternative.advice, len(probes()), _CAP, None, moves, None, None)
            ranked.append((moves, better))
    ranked.sort(key=lambda entry: -entry[0])
    return Diagnosis(tuple(finding for _, finding in ranked), (), not model.trained_with_mask, why)


def alternatives(contract: Contract) -> Iterator[Alternative]:
    """Every contract that differs from this one in one thing."""
    terms = contract.contract
    for name in variation_names():
        if variation(name).applies(terms.planes, vocabulary(terms.vocabulary)):
            declared = name in terms.variations
            names = tuple(n for n in terms.variations if n != name) if declared else (*terms.variations, name)
            changed = _changed(contract, "contract", variations=names)
            verb = "take it out of" if declared else "add it to"
            advice = f"{'not ' if declared else ''}trained with {variation(name).words}: {verb} contract.variations"
            yield Alternative(f"without {name}" if declared else name, changed, advice, _SHOWS_IN[name])
    if terms.planes == "lc0-112":
        for fill in HistoryFill:
            if fill is not terms.history_fill:
                changed = _changed(contract, "contract", history_fill=fill)
                name = f"history_fill = {fill.value}"
                yield Alternative(name, changed, f'write contract.history_fill = "{fill.value}"', "general", bare=True)
    yield from _value_alternatives(contract)
    inputs = contract.inputs
    if inputs.elo_self is not None and inputs.elo_opponent is not None:
        changed = _changed(contract, "inputs", elo_self=inputs.elo_opponent, elo_opponent=inputs.elo_self)
        yield Alternative("ratings swapped", changed, "swap inputs.elo_self and inputs.elo_opponent", "ratings")


def _changed(contract: Contract, section: str, **update: object) -> Contract:
    return contract.model_copy(update={section: getattr(contract, section).model_copy(update=update)})


def _value_alternatives(contract: Contract) -> Iterator[Alternative]:
    value = contract.outputs.value
    if value is None:
        return

    def changed(**update: object) -> Contract:
        return _changed(contract, "outputs", value=value.model_copy(update=update))

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
    variant = Model(model.name, model.digest, alternative.contract, model.session)
    try:
        evidence = _evidence(variant, part)
    except ModelError as error:
        return Finding(alternative.name, alternative.advice, len(part), -_CAP, None, None, None, str(error))
    differences = {
        "leakage": evidence.leakage - base.leakage if not model.trained_with_mask else np.full(len(part), np.nan),
        "moves": evidence.moves - base.moves,
        "result": evidence.result - base.result,
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
    nonzero = [score for score in scores if score != 0]
    z = sum(nonzero) / len(nonzero) ** 0.5 if nonzero else 0.0
    return Finding(alternative.name, alternative.advice, len(part), z, **means, impossible=None)


def _z(differences: Numbers) -> float:
    """The mean in standard errors, capped at ±40; 0 if nothing differs."""
    error = differences.std() / len(differences) ** 0.5
    mean = differences.mean()
    if error == 0:
        return float(np.sign(mean)) * _CAP
    return float(np.clip(mean / error, -_CAP, _CAP))


def _evidence(model: Model, part: Sequence[Probe]) -> _Evidence:
    """The evidence of these probes. Raises the model's error for the first probe that it rejects."""
    leaked, moves, results = [], [], []
    for start in range(0, len(part), _BATCH):
        chunk = part[start : start + _BATCH]
        evaluated = evaluate_positions(model, [probe.position for probe in chunk], [probe.elo for probe in chunk])
        batch, legal = evaluated.batch, evaluated.unmasked.legal
        leaked.append(np.log(np.maximum(evaluated.raw, _LEAST)))
        for row, probe in enumerate(chunk):
            span = batch.legal(row)
            logs = legal[span] - np.logaddexp.reduce(legal[span])
            moves.append(_played(dict(zip(moves_of(batch.codes[span]), logs.tolist(), strict=True)), probe))
            results.append(_result(None if evaluated.value is None else evaluated.value[row], probe.result))
    return _Evidence(np.concatenate(leaked), np.array(moves), np.array(results))


def _played(logs: Mapping[chess.Move, float], probe: Probe) -> float:
    """Mean ln probability of the moves played; NaN if none was."""
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


def _by_kind(tags: Sequence[frozenset[str]], evidence: _Evidence) -> Iterator[KindFigures]:
    for kind in KINDS:
        rows = np.array([kind in tags_of_probe for tags_of_probe in tags])
        raw, moves = np.exp(evidence.leakage[rows]), evidence.moves[rows]
        known = moves[np.isfinite(moves)]
        perplexity = float(np.exp(-known.mean())) if len(known) else None
        yield KindFigures(kind, int(rows.sum()), float(raw.mean()), float(raw.max()), perplexity)
