"""How a network is read, in words: whether its raw leakage is like that of networks that are read rightly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from movemask.audit.summary import ModelSummary
from movemask.leakage.cells import CAUSE
from movemask.leakage.kinds import RAW
from movemask.leakage.known import BY_PHASE, IN_GAMES

_ENOUGH = 50  # fewest positions of a phase that is judged

#: Leakage over that of the known networks: from 4 times on the network is probably read wrongly, from 2 on it is high.
_FAR, _MORE = 4.0, 2.0
_CHANCE = 0.5  # a mean leakage that no rightly read network reaches
_MAIN = 0.5  # share of the mass from which on a cause is named
_FEW = 200  # fewer positions than this say little

Level = Literal["usual", "high", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class Assessment:
    """A network's level, and the sentences that explain it."""

    level: Level
    words: str


def assessment_of(model: ModelSummary) -> Assessment:
    """How a network is read: its mean raw leakage beside that of the known networks.

    The known figures are of positions of games. If there are enough of those, only they are judged. Single positions
    may be composed, and composed positions leak more with every network, so their leakage alone says `unknown`, not
    `high` or `wrong`, unless it is at least half of the probability.
    """
    diagnose = f"`movemask models check {model.name} --diagnose`"
    everything, singles = model, model.positions - model.of_games
    if model.games is not None and model.games.of(RAW).count >= _FEW:
        model = model.games
    figures = model.of(RAW)
    if model.trained_with_mask:
        words = f"trained with the mask, so leakage does not say how it is read: {diagnose} judges it by its moves"
        return Assessment("unknown", f"{model.name}: {words}.")
    if figures.mean is None:
        return Assessment(
            "unknown",
            f"{model.name}: raw leakage was not measured, so nothing is said of how it is read.",
        )
    times, where = max([(figures.mean / max(IN_GAMES.values()), ""), *_by_phase(model)])
    few = f" Only {figures.count:,} positions were measured." if figures.count < _FEW else ""
    if model is not everything:
        few += f" This judges the {figures.count:,} positions of games, not the {singles:,} single positions."
    amount = f"{100 * figures.mean:.2g} % of the probability is on illegal moves"
    if times < _MORE:
        words = f"{amount},{where} {times:.1f} times the amount of networks that are read rightly, which is usual"
        rare = f"Mistakes in few moves, such as castling and promotions, need {diagnose}"
        return Assessment("usual", f"{model.name}: {words}. {rare}.{few}")
    more = f"{amount},{where} {times:.0f} times the amount of networks that are read rightly{_main_cause(model)}"
    best = f"; an illegal move comes first in {figures.flips:,} of {figures.count:,} positions"
    if figures.mean >= _CHANCE:
        words = f"READ WRONGLY, or untrained: {more}{best}. {diagnose} names mistakes"
        return Assessment("wrong", f"{model.name}: {words}.{few}")
    if singles and model is everything:
        words = f"{more}{best}. {_of_singles(model)}: audit games with {_FEW} positions or more"
        return Assessment("unknown", f"{model.name}: {words}, or run {diagnose}.")
    if times >= _FAR:
        return Assessment(
            "wrong", f"{model.name}: PROBABLY READ WRONGLY: {more}{best}. Run {diagnose}.{few}"
        )
    words = f"more than expected: {more}. If the positions are of ordinary games, run {diagnose}"
    return Assessment("high", f"{model.name}: {words}.{few}")


def sides(model: ModelSummary) -> dict[str, int]:
    """Number of positions by side to move, White first."""
    kind = next(iter(model.cells)).kind
    return {side: model.of(kind, "side", side).positions for side in ("white", "black")}


def one_sided(model: ModelSummary) -> str | None:
    """A warning, if all positions have the same side to move; None if not."""
    missing = [side for side, count in sides(model).items() if not count]
    if not missing:
        return None
    return f"no position has {missing[0].capitalize()} to move, so this says nothing of how those are read"


def _of_singles(model: ModelSummary) -> str:
    """Why the leakage of single positions does not say how the network is read, in words."""
    games = f"only {model.of_games:,} of {model.positions:,} positions come from games"
    reason = "composed positions leak more with every network, so this does not say how the network is read"
    return f"But {games if model.of_games else 'no position comes from a game'}, and {reason}"


def _by_phase(model: ModelSummary) -> Iterator[tuple[float, str]]:
    """For each phase, the network's leakage over the known networks', and the phase in words."""
    for phase, known in BY_PHASE.items():
        cell = model.of(RAW, "phase", phase)
        if cell.count >= _ENOUGH and cell.mean is not None:
            article = "an" if phase[0] in "aeiou" else "a"
            yield cell.mean / known, f" in {article} {phase}"


def _main_cause(model: ModelSummary) -> str:
    """The cause of most of the illegal mass, in words; empty if no cause has half."""
    total = model.of(RAW).sum
    for cause in model.groups(CAUSE)[:1]:
        share = model.of(RAW, CAUSE, cause).sum / total if total else 0
        if share >= _MAIN:
            return f", {share:.0%} of it {cause}"
    return ""
