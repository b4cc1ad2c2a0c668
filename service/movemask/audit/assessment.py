"""The assessment of a network: whether its raw leakage is that of correctly read networks, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from movemask.audit.summary import ModelSummary
from movemask.leakage.cells import CAUSE
from movemask.leakage.kinds import RAW
from movemask.leakage.known import BY_PHASE, IN_GAMES

_ENOUGH = 50  # fewest positions of a phase that is judged

#: Leakage over that of correctly read networks: from 4 times on the network is probably read wrongly, from 2 on it is
#: high.
_FAR, _MORE = 4.0, 2.0
_CHANCE = 0.5  # a mean leakage that no correctly read network reaches
_MAIN = 0.5  # share of the mass from which on a cause is named
_FEW = 200  # fewer positions than this say little

Level = Literal["usual", "high", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class Assessment:
    """A network's level, and the sentences that explain it."""

    level: Level
    words: str


class _Leakage(NamedTuple):
    """Mean raw leakage of all positions or of a phase, over that of correctly read networks, and both in words."""

    times: float
    words: str


def assessment_of(model: ModelSummary) -> Assessment:
    """Returns how a network is read: its mean raw leakage beside that of correctly read networks.

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
        sentences = [
            "it was trained with the mask, so leakage does not say how it is read.",
            f"Run {diagnose}, which judges it by its moves.",
        ]
        return _assessment("unknown", model, sentences)
    if figures.mean is None:
        return _assessment("unknown", model, ["raw leakage was not measured."])
    notes = []
    if figures.count < _FEW:
        notes.append(f"Only {figures.count:,} positions were measured.")
    if model is not everything:
        notes.append(
            f"This judges the {figures.count:,} positions of games, not the {singles:,} single positions."
        )
    overall = _overall(figures.mean)
    highest = max([overall, *_by_phase(model)])
    if highest.times < _MORE:
        rare = f"Mistakes in few moves, such as castling and promotions, need {diagnose}."
        return _assessment("usual", model, [overall.words, rare, *notes])
    sentences = [
        highest.words,
        *_main_cause(model),
        f"An illegal move comes first in {figures.flips:,} of {figures.count:,} positions.",
    ]
    run = f"Run {diagnose}."
    if figures.mean >= _CHANCE:
        verdict = "READ WRONGLY, or untrained:"
        return _assessment("wrong", model, [verdict, *sentences, run, *notes])
    if singles and model is everything:
        instead = f"Audit games with {_FEW} positions or more, or run {diagnose}."
        return _assessment("unknown", model, [*sentences, *_of_singles(model), instead])
    if highest.times >= _FAR:
        return _assessment("wrong", model, ["PROBABLY READ WRONGLY:", *sentences, run, *notes])
    ordinary = f"If the positions are of ordinary games, run {diagnose}."
    return _assessment("high", model, [highest.words, *_main_cause(model), ordinary, *notes])


def _assessment(level: Level, model: ModelSummary, sentences: Iterable[str]) -> Assessment:
    return Assessment(level, f"{model.name}: {' '.join(sentences)}")


def _overall(mean: float) -> _Leakage:
    """Returns the mean leakage of all positions beside the range of correctly read networks."""
    least, most = min(IN_GAMES.values()), max(IN_GAMES.values())
    usual = f"({percent(least)} to {percent(most)})" if least < most else f"({percent(most)})"
    times, amount = mean / most, f"raw leakage {percent(mean)}"
    if times >= _MORE:
        return _Leakage(
            times, f"{amount}, {times:.0f} times that of correctly read networks {usual}."
        )
    if mean > most:
        return _Leakage(times, f"{amount}: a little above that of correctly read networks {usual}.")
    if mean < least:
        return _Leakage(times, f"{amount}: no more than that of correctly read networks {usual}.")
    return _Leakage(times, f"{amount}: typical of a correctly read network {usual}.")


def percent(share: float | None) -> str:
    """Returns a share in percent, with two digits, or three from 10 % on; a dash for None."""
    if share is None:
        return "-"
    return f"{100 * share:.3g} %" if share >= 0.1 else f"{100 * share:.2g} %"


def sides(model: ModelSummary) -> dict[str, int]:
    """Returns the number of positions by side to move, White first."""
    kind = next(iter(model.cells)).kind
    return {side: model.of(kind, "side", side).positions for side in ("white", "black")}


def one_sided(model: ModelSummary) -> str | None:
    """Returns a warning, if all positions have the same side to move; None if not."""
    missing = [side for side, count in sides(model).items() if not count]
    if not missing:
        return None
    return f"no position has {missing[0].capitalize()} to move, so this does not say how such positions are read"


def _of_singles(model: ModelSummary) -> Iterator[str]:
    """Yields why the leakage of single positions does not say how the network is read."""
    if model.of_games:
        yield f"But only {model.of_games:,} of {model.positions:,} positions come from games."
    else:
        yield "But no position comes from a game."
    yield "Composed positions leak more with every network, so this does not say how the network is read."


def _by_phase(model: ModelSummary) -> Iterator[_Leakage]:
    """Yields the mean leakage of each phase beside the highest of correctly read networks."""
    for phase, known in BY_PHASE.items():
        cell = model.of(RAW, "phase", phase)
        if cell.count >= _ENOUGH and cell.mean is not None:
            times, amount = cell.mean / known, f"raw leakage {percent(cell.mean)} in {phase}s"
            usual = f"correctly read networks (at most {percent(known)})"
            yield _Leakage(times, f"{amount}, {times:.0f} times that of {usual}.")


def _main_cause(model: ModelSummary) -> Iterator[str]:
    """Yields the cause of most of the illegal mass; nothing if no cause has half."""
    total = model.of(RAW).sum
    for cause in model.groups(CAUSE)[:1]:
        share = model.of(RAW, CAUSE, cause).sum / total if total else 0
        if share >= _MAIN:
            yield f"{share:.0%} of it has the cause {cause}."
