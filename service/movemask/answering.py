"""The two steps of a query that are taken for many at once: what is asked → encoded, and logits → answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from movemask.board.draws import Draw, draws_of
from movemask.board.encoded import Elo, EncodedPosition
from movemask.board.phase import Phase, phases_of
from movemask.board.position import Position, boards_of
from movemask.errors import InvalidLogits, MovemaskError
from movemask.inference.batcher import Inferred
from movemask.inference.model import Evaluation, Model
from movemask.leakage.kinds import ALWAYS
from movemask.leakage.leakage import Batch, leakages
from movemask.leakage.record import Leakage
from movemask.leakage.served import Told, served
from movemask.leakage.traits import Traits
from movemask.policy import Policy, Rule, legal_of, policies


@dataclass(frozen=True, slots=True)
class Query:
    """One position that is asked about, as it came."""

    fen: str | None = None
    moves: tuple[str, ...] = ()
    chess960: bool = False
    elo: Elo | None = None
    rule: Rule = field(default_factory=Rule)


@dataclass(frozen=True, slots=True)
class Asked:
    """A position that is known to be valid, the ratings and the rule to answer by."""

    position: Position
    elo: Elo | None
    rule: Rule


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that a query waited for the network, and that the network took for its batch."""

    queue: float
    inference: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of one position. Without a legal move, `policy`, `leakage`, `timing` and `traits` are None: nothing
    was run.

    `value` is win, draw, loss for the side to move, None if the network has none.
    """

    position: Position
    status: str
    draw: Draw | None  # with a legal move alone
    legal_moves: int  # all of them; the policy holds those that the rule keeps
    traits: Traits | None
    policy: Policy | None
    leakage: Leakage | None
    value: tuple[float, ...] | None  # win, draw, loss for the side to move, or its expected score alone
    asked_elo: Elo | None
    elo: Elo | None  # what the network was given
    ignored: tuple[str, ...]
    rule: Rule  # with the temperature that was used
    timing: Timing | None


Outcome = Answer | MovemaskError


@dataclass(frozen=True, slots=True)
class Ready:
    """What is asked, encoded; the rule's temperature is a number."""

    asked: Asked
    encoded: EncodedPosition

    @property
    def finished(self) -> bool:
        """Whether there is no legal move, and so nothing to run."""
        return not len(self.encoded.codes)


@dataclass(frozen=True, slots=True)
class Run:
    """What the network said of one position: logits `[A]`, value `[3]` or `[1]` or None; the kinds to measure, and
    whether python-chess is to judge the answer anew."""

    ready: Ready
    logits: NDArray[np.floating]
    value: tuple[float, ...] | None
    timing: Timing
    kinds: tuple[str, ...] = ALWAYS
    judged: bool = False


def prepared(
    model: Model, items: Sequence[Query | Asked], *, max_moves: int | None = None
) -> list[Ready | MovemaskError]:
    """Each read and encoded, or why it cannot be."""
    asked = [_with_temperature(model, one) for one in _read(items, max_moves)]
    valid = [one for one in asked if isinstance(one, Asked)]
    encoded = iter(model.encode_all([one.position for one in valid], [one.elo for one in valid]))
    found: list[Ready | MovemaskError] = []
    for one in asked:
        if isinstance(one, MovemaskError):
            found.append(one)
            continue
        its = next(encoded)
        found.append(its if isinstance(its, MovemaskError) else Ready(one, its))
    return found


def _read(items: Sequence[Query | Asked], max_moves: int | None) -> list[Asked | MovemaskError]:
    """The positions of queries; those that are a FEN and nothing else are read together."""
    together = iter(Position.read_all([fen for item in items if (fen := _fen_alone(item)) is not None]))
    found: list[Asked | MovemaskError] = []
    for item in items:
        if isinstance(item, Asked):
            found.append(item)
            continue
        position: Position | MovemaskError
        if _fen_alone(item) is not None:
            position = next(together)
        else:
            try:
                position = Position.read(item.fen, item.moves, chess960=item.chess960, max_moves=max_moves)
            except MovemaskError as error:
                position = error
        found.append(Asked(position, item.elo, item.rule) if isinstance(position, Position) else position)
    return found


def _fen_alone(item: Query | Asked) -> str | None:
    """The FEN of a query that is nothing else."""
    return None if isinstance(item, Asked) or item.moves or item.chess960 else item.fen


def _with_temperature(model: Model, asked: Asked | MovemaskError) -> Asked | MovemaskError:
    if isinstance(asked, MovemaskError) or not asked.rule.calibrated:
        return asked
    try:
        return replace(asked, rule=replace(asked.rule, temperature=model.calibrated_temperature()))
    except MovemaskError as error:
        return error


def runs_of(
    ready: Sequence[Ready], inferred: Inferred, kinds: tuple[str, ...] = ALWAYS, judged: Sequence[bool] | None = None
) -> list[Run]:
    """What `answers` takes, of the positions of one submission."""
    timing = Timing(inferred.queue_seconds, inferred.inference_seconds)
    logits, value = inferred.evaluation.logits, inferred.evaluation.value
    values = [None] * len(ready) if value is None else [tuple(one) for one in value.tolist()]
    anew = [False] * len(ready) if judged is None else judged
    return [
        Run(item, own, told, timing, kinds, judge)
        for item, own, told, judge in zip(ready, logits, values, anew, strict=True)
    ]


def kept_run(item: Ready, kept: Evaluation, kinds: tuple[str, ...], judged: bool) -> Run:
    """The run of a position that the network was asked about before; it took no time."""
    value = None if kept.value is None else tuple(kept.value[0].tolist())
    return Run(item, kept.logits[0], value, Timing(0.0, 0.0), kinds, judged)


def answers(model: Model, runs: Sequence[Run], *, least: float) -> list[Outcome]:
    """Logits → policies, leakage and finished answers; a run whose logits are unusable spoils only itself."""
    made: dict[int, Outcome] = {}
    for kinds in {run.kinds for run in runs}:
        places = [place for place, run in enumerate(runs) if run.kinds == kinds]
        own = [runs[place] for place in places]
        try:
            outcomes = _answers(model, own, kinds, least)
        except MovemaskError:
            outcomes = [_alone(model, run, least) for run in own]
        made.update(zip(places, outcomes, strict=True))
    return [made[place] for place in range(len(runs))]


def _alone(model: Model, run: Run, least: float) -> Outcome:
    try:
        return _answers(model, [run], run.kinds, least)[0]
    except InvalidLogits as error:
        return InvalidLogits(f"model {model.name}: {error}, in {run.ready.encoded.position.fen!r}")
    except MovemaskError as error:
        return error


def _answers(model: Model, runs: Sequence[Run], kinds: Sequence[str], least: float) -> list[Outcome]:
    batch = [run.ready.encoded for run in runs]
    positions = [encoded.position for encoded in batch]
    logits = np.stack([run.logits for run in runs])
    legal = legal_of(batch, logits)
    made = policies(batch, legal, [run.ready.asked.rule for run in runs])
    for run, policy in zip(runs, made, strict=True):
        encoded = run.ready.encoded
        told = Told(encoded.position, policy.codes, policy.probabilities, policy.abstention, encoded.codes)
        served(told, judged=run.judged)
    measured = Batch(logits, legal.slots, legal.indptr)
    codes = [encoded.codes for encoded in batch]
    leaked = leakages(positions, model.vocabulary, measured, codes, kinds=kinds, least=least)
    boards = boards_of(positions)
    phases, draws = phases_of(boards), draws_of(boards, positions)
    return [
        _answer(model, run, policy, leakage, phase, draw)
        for run, policy, leakage, phase, draw in zip(runs, made, leaked, phases, draws, strict=True)
    ]


def _answer(model: Model, run: Run, policy: Policy, leakage: Leakage, phase: Phase, draw: Draw | None) -> Answer:
    asked, encoded = run.ready.asked, run.ready.encoded
    position, elo, count = encoded.position, asked.elo, len(encoded.codes)
    return Answer(
        position=position,
        status="ongoing",
        draw=draw,
        legal_moves=count,
        traits=Traits(position.turn, encoded.in_check, phase, count, None if elo is None else elo.self),
        policy=policy,
        leakage=leakage,
        value=run.value,
        asked_elo=elo,
        elo=encoded.elo,
        ignored=model.ignored(position, elo),
        rule=asked.rule,
        timing=run.timing,
    )


def finished(model: Model, item: Ready) -> Answer:
    """The answer where there is no legal move."""
    position = item.encoded.position
    return Answer(
        position=position,
        status=position.status(has_legal_moves=False),
        draw=None,
        legal_moves=0,
        traits=None,
        policy=None,
        leakage=None,
        value=None,
        asked_elo=item.asked.elo,
        elo=item.encoded.elo,
        ignored=model.ignored(position, item.asked.elo),
        rule=item.asked.rule,
        timing=None,
    )
