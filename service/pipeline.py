"""The story on one page: queries → positions → network → policy and leakage → audit → answers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from service.audit import leakage as audit
from service.audit.kinds import Plan
from service.audit.record import AuditRecord, Leakage
from service.audit.served import served as served_leakage
from service.audit.traits import Traits
from service.encoding.encoded import Elo, EncodedPosition
from service.encoding.position import Position
from service.errors import InvalidLogits, MovemaskError
from service.inference.batcher import Batcher, Inferred
from service.inference.model import Model
from service.merging import Merged
from service.policy import Policy, Rule, legal_of, policies


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
    """What is known of one position. Without a legal move, `policy`, `leakage` and `timing` are None: nothing was run.

    `value` is win, draw, loss for the side to move, None if the network has none.
    """

    position: Position
    status: str
    legal_moves: int  # all of them; the policy holds those that the rule keeps
    policy: Policy | None
    leakage: Leakage | None
    value: tuple[float, ...] | None  # win, draw, loss for the side to move, or its expected score alone
    asked_elo: Elo | None
    elo: Elo | None  # what the network was given
    ignored: tuple[str, ...]
    rule: Rule  # with the temperature that was used
    timing: Timing | None


@dataclass(frozen=True, slots=True)
class _Ready:
    """What is asked, encoded; the rule's temperature is a number."""

    asked: Asked
    encoded: EncodedPosition


Outcome = Answer | MovemaskError


@dataclass(frozen=True, slots=True)
class _Run:
    """What the network said of one position: logits `[A]`, value `[3]` or `[1]` or None, and the kinds to measure."""

    ready: _Ready
    logits: NDArray[np.floating]
    value: NDArray[np.float64] | None
    timing: Timing
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Lane:
    """The two steps of one network's requests that are taken off the event loop."""

    prepare: Merged[Query | Asked, _Ready | MovemaskError]
    answer: Merged[_Run, Outcome]


_DEFAULT_PLAN = Plan()


class Pipeline:
    """Evaluates queries on models.

    Parameters
    ----------
    record : takes audit records and returns at once
    executor : where positions are read and distributions made, off the event loop
    max_moves : limit of `Query.moves`
    plan : which kinds of leakage are measured
    """

    def __init__(
        self,
        record: Callable[[Sequence[AuditRecord]], None],
        executor: Executor,
        *,
        max_moves: int,
        plan: Plan = _DEFAULT_PLAN,
    ) -> None:
        self._record = record
        self._executor = executor
        self._max_moves = max_moves
        self._plan = plan
        self._random = random.Random()
        self._lanes: WeakKeyDictionary[Batcher, _Lane] = WeakKeyDictionary()

    async def evaluate(self, asked: Sequence[Query | Asked], batcher: Batcher) -> list[Outcome]:
        """An answer or an error for each query or position, in order; raises only what stops them all
        (queue, model)."""
        lane = self._lane(batcher)
        made = await lane.prepare.run(asked)
        ready = [item for item in made if isinstance(item, _Ready) and item.encoded.moves]
        answered: Iterator[Outcome] = iter(())
        if ready:
            inferred = await batcher.submit([item.encoded for item in ready])
            kinds = self._plan.drawn(self._random.random())
            outcomes = await lane.answer.run(runs_of(ready, inferred, kinds))
            self._audit(batcher.model, outcomes)
            answered = iter(outcomes)
        return [
            item
            if isinstance(item, MovemaskError)
            else next(answered)
            if item.encoded.moves
            else _terminal(batcher.model, item)
            for item in made
        ]

    def _lane(self, batcher: Batcher) -> _Lane:
        """Where the work of all requests for a network is merged."""
        if batcher not in self._lanes:
            model, least = batcher.model, self._plan.least
            self._lanes[batcher] = _Lane(
                Merged(self._executor, lambda items: prepared(model, items, self._read)),
                Merged(self._executor, lambda runs: answers(model, runs, least=least)),
            )
        return self._lanes[batcher]

    def _read(self, query: Query | Asked) -> Asked:
        if isinstance(query, Asked):
            return query
        position = Position.read(query.fen, query.moves, chess960=query.chess960, max_moves=self._max_moves)
        return Asked(position, query.elo, query.rule)

    def _audit(self, model: Model, outcomes: Sequence[Outcome]) -> None:
        now = time.time()
        records = [
            AuditRecord(
                time=now,
                model=model.name,
                digest=model.digest,
                trained_with_mask=model.trained_with_mask,
                fen=answer.position.fen,
                chess960=answer.position.board.chess960,
                traits=Traits.of(
                    answer.position.board,
                    answer.legal_moves,
                    None if answer.asked_elo is None else answer.asked_elo.self,
                ),
                leakage=answer.leakage,
            )
            for answer in outcomes
            if isinstance(answer, Answer) and answer.leakage is not None
        ]
        self._record(records)


def prepared(
    model: Model, items: Sequence[Query | Asked], read: Callable[[Query | Asked], Asked]
) -> list[_Ready | MovemaskError]:
    """Each read and encoded, or why it cannot be."""
    asked = [_asked(model, item, read) for item in items]
    valid = [one for one in asked if isinstance(one, Asked)]
    encoded = iter(model.encode_all([one.position for one in valid], [one.elo for one in valid]))
    found: list[_Ready | MovemaskError] = []
    for one in asked:
        if isinstance(one, MovemaskError):
            found.append(one)
            continue
        its = next(encoded)
        found.append(its if isinstance(its, MovemaskError) else _Ready(one, its))
    return found


def _asked(model: Model, item: Query | Asked, read: Callable[[Query | Asked], Asked]) -> Asked | MovemaskError:
    try:
        asked = read(item)
        if asked.rule.calibrated:
            asked = replace(asked, rule=replace(asked.rule, temperature=model.calibrated_temperature()))
    except MovemaskError as error:
        return error
    return asked


def runs_of(ready: Sequence[_Ready], inferred: Inferred, kinds: tuple[str, ...]) -> list[_Run]:
    """What `answers` takes, of the positions of one submission."""
    timing = Timing(inferred.queue_seconds, inferred.inference_seconds)
    values = [None] * len(ready) if inferred.value is None else list(inferred.value)
    return [
        _Run(item, logits, value, timing, kinds)
        for item, logits, value in zip(ready, inferred.logits, values, strict=True)
    ]


def answers(model: Model, runs: Sequence[_Run], *, least: float) -> list[Outcome]:
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


def _alone(model: Model, run: _Run, least: float) -> Outcome:
    try:
        return _answers(model, [run], run.kinds, least)[0]
    except InvalidLogits as error:
        return InvalidLogits(f"model {model.name}: {error}, in {run.ready.encoded.position.fen!r}")
    except MovemaskError as error:
        return error


def _answers(model: Model, runs: Sequence[_Run], kinds: Sequence[str], least: float) -> list[Outcome]:
    ready = [run.ready for run in runs]
    batch = [item.encoded for item in ready]
    logits = np.stack([run.logits for run in runs])
    legal = legal_of(batch, logits)
    made = policies(batch, legal, [item.asked.rule for item in ready])
    served = [
        served_leakage(
            encoded.position.board,
            policy.moves,
            policy.probabilities,
            policy.abstention,
            legal_moves=len(encoded.moves),
        )
        for encoded, policy in zip(batch, made, strict=True)
    ]
    leaked = audit.leakages(
        [encoded.position for encoded in batch],
        model.vocabulary,
        logits,
        legal.slots,
        legal.indptr,
        served,
        kinds=kinds,
        least=least,
    )
    return [
        Answer(
            position=item.encoded.position,
            status="ongoing",
            legal_moves=len(item.encoded.moves),
            policy=policy,
            leakage=leakage,
            value=None if run.value is None else tuple(run.value.tolist()),
            asked_elo=item.asked.elo,
            elo=item.encoded.elo,
            ignored=model.ignored(item.encoded.position, item.asked.elo),
            rule=item.asked.rule,
            timing=run.timing,
        )
        for run, item, policy, leakage in zip(runs, ready, made, leaked, strict=True)
    ]


def _terminal(model: Model, item: _Ready) -> Answer:
    position = item.encoded.position
    return Answer(
        position=position,
        status=position.status(has_legal_moves=False),
        legal_moves=0,
        policy=None,
        leakage=None,
        value=None,
        asked_elo=item.asked.elo,
        elo=item.encoded.elo,
        ignored=model.ignored(position, item.asked.elo),
        rule=item.asked.rule,
        timing=None,
    )
