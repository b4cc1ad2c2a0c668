"""What an audit says of a network in words: whether its raw leakage is that of networks that are read rightly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from movemask.bulk.summary import ModelSummary
from movemask.leakage.kinds import RAW
from movemask.store.cells import CAUSE

#: Mean `raw` leakage of networks that are read rightly, on positions of lichess games, with the moves that led there:
#: README's table. Maia-1 is the nearest of seven to the mover's rating.
KNOWN = {"movemask-5": 0.00604, "Maia-1": 0.00562}

#: The same by phase of the game, the highest of movemask-5 and Maia-1 1100, 1500 and 1900 on 15,600 positions: the
#: eight that each probe of the diagnosis has with its history. A mistake in castling shows in openings.
_PHASES = {"opening": 0.0034, "middlegame": 0.0080, "endgame": 0.0109}
_ENOUGH = 50  # positions of a phase from which on it is judged

#: A network that leaks so many times as much as the highest of them may be read wrongly; twice as much is unusual.
_FAR, _MORE = 4.0, 2.0
_CHANCE = 0.5  # no network that is read rightly leaks so much
_MAIN = 0.5  # share of the mass from which on a cause is named
_FEW = 200  # positions that say little

Level = Literal["usual", "high", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A network's level and the sentences that say so."""

    level: Level
    words: str


def verdict(model: ModelSummary) -> Verdict:
    """The verdict on a network by its mean raw leakage, beside that of the known networks."""
    diagnose = f"`movemask models check {model.name} --diagnose`"
    figures = model.of(RAW)
    if model.trained_with_mask:
        words = f"trained with the mask, so leakage does not say how it is read: {diagnose} judges it by its moves"
        return Verdict("unknown", f"{model.name}: {words}.")
    if figures.mean is None:
        return Verdict("unknown", f"{model.name}: raw leakage was not measured, so nothing is said of how it is read.")
    times, where = max([(figures.mean / max(KNOWN.values()), ""), *_by_phase(model)])
    few = f" Only {figures.count:,} positions were measured." if figures.count < _FEW else ""
    amount = f"{100 * figures.mean:.2g} % of the probability is on illegal moves"
    if times < _MORE:
        words = f"{amount},{where} {times:.1f} times what networks that are read rightly put there, which is usual"
        rare = f"Mistakes in few moves, such as castling and promotions, need {diagnose}"
        return Verdict("usual", f"{model.name}: {words}. {rare}.{few}")
    more = f"{amount},{where} {times:.0f} times what networks that are read rightly put there{_main_cause(model)}"
    best = f"; an illegal move comes first in {figures.flips:,} of {figures.count:,} positions"
    if figures.mean >= _CHANCE:
        words = f"READ WRONGLY, or untrained: {more}{best}. {diagnose} names mistakes"
        return Verdict("wrong", f"{model.name}: {words}.{few}")
    if times >= _FAR:
        return Verdict("wrong", f"{model.name}: PROBABLY READ WRONGLY: {more}{best}. Run {diagnose}.{few}")
    words = f"more than expected: {more}. If the positions are of ordinary games, run {diagnose}"
    return Verdict("high", f"{model.name}: {words}.{few}")


def _by_phase(model: ModelSummary) -> Iterator[tuple[float, str]]:
    """How many times as much as the known networks it leaks in each phase, and the phase in words."""
    for phase, known in _PHASES.items():
        cell = model.of(RAW, "phase", phase)
        if cell.count >= _ENOUGH and cell.mean is not None:
            article = "an" if phase[0] in "aeiou" else "a"
            yield cell.mean / known, f" in {article} {phase}"


def _main_cause(model: ModelSummary) -> str:
    """The cause of most of the illegal mass, in words."""
    total = model.of(RAW).sum
    for cause in model.groups(CAUSE)[:1]:
        share = model.of(RAW, CAUSE, cause).sum / total if total else 0
        if share >= _MAIN:
            return f", {share:.0%} of it {cause}"
    return ""
