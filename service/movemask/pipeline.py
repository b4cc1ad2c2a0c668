"""The story on one page: queries → positions → network → policy and leakage → audit → answers."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import count
from weakref import WeakKeyDictionary

from movemask.answering import Answer, Asked, Outcome, Query, Ready, Run, answers, finished, kept_run, prepared, runs_of
from movemask.errors import MovemaskError
from movemask.inference.batcher import Batcher, Inferred
from movemask.inference.cache import EvaluationCache, key_of
from movemask.inference.model import Model
from movemask.leakage.kinds import Plan
from movemask.leakage.record import AuditRecord
from movemask.merging import Merged

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Lane:
    """The two steps of one network's requests that are taken for many at once."""

    prepare: Merged[Query | Asked, Ready | MovemaskError]
    answer: Merged[Run, Outcome]
    number: int  # of no other network, not even of one that took its place under the same name


@dataclass(frozen=True, slots=True)
class NetworkRun:
    """One submission to a network: when it was made, when its first batch began, when it was answered, by
    `time.perf_counter`."""

    model: str
    positions: int
    submitted: float
    started: float
    ended: float


class Watch:
    """Told of what happens beside the answers; this one does nothing about it."""

    def judged(self, count: int) -> None:
        """So many answers were held to python-chess."""

    def inferred(self, run: NetworkRun) -> None:
        """A network answered one submission; called in the task that asked for it."""

    def cached(self, model: str, *, hits: int, misses: int, size: int) -> None:
        """So many positions were known, so many not; the cache holds `size` bytes."""


_DEFAULT_PLAN = Plan()


def _plies(item: Query | Asked) -> int:
    """What reading it costs: a move that is played takes python-chess longer than a FEN takes to be read."""
    return 1 + len(item.moves) if isinstance(item, Query) else 1


class Pipeline:
    """Evaluates queries on models.

    Parameters
    ----------
    record : takes audit records, and how many could not be made, and returns at once
    executor : where the positions of a large request are read and its distributions made, off the event loop
    max_moves : limit of `Query.moves`
    plan : which kinds of leakage are measured
    judge_share : share of the answers that are held to python-chess anew
    cache : what networks said is kept there; nothing is if None
    """

    def __init__(
        self,
        record: Callable[[Sequence[AuditRecord], int], None],
        executor: Executor,
        *,
        max_moves: int,
        plan: Plan = _DEFAULT_PLAN,
        judge_share: float = 1.0,
        cache: EvaluationCache | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._record = record
        self._executor = executor
        self._max_moves = max_moves
        self._plan = plan
        self._judge_share = judge_share
        self._cache = EvaluationCache(0) if cache is None else cache
        self._watch = Watch() if watch is None else watch
        self._numbers = count()
        self._answered: list[tuple[Model, Sequence[Outcome], int]] = []
        self._random = random.Random()
        self._lanes: WeakKeyDictionary[Batcher, _Lane] = WeakKeyDictionary()

    async def evaluate(self, asked: Sequence[Query | Asked], batcher: Batcher) -> list[Outcome]:
        """An answer or an error for each query or position, in order; raises only what stops them all
        (queue, model)."""
        lane, model = self._lane(batcher), batcher.model
        made = await lane.prepare.run(asked)
        outcomes: list[Outcome | None] = [
            item if isinstance(item, MovemaskError) else finished(model, item) if item.finished else None
            for item in made
        ]
        ready = [item for item in made if isinstance(item, Ready) and not item.finished]
        if ready:
            runs = await self._runs(ready, lane, batcher)
            answered = await lane.answer.run(runs)
            self._audit_soon(model, answered, sum(run.judged for run in runs))
            following = iter(answered)
            return [next(following) if outcome is None else outcome for outcome in outcomes]
        return [outcome for outcome in outcomes if outcome is not None]

    async def _runs(self, ready: Sequence[Ready], lane: _Lane, batcher: Batcher) -> list[Run]:
        """What the network says of positions, now or when it was asked about them before."""
        kinds = self._plan.drawn(self._random.random())
        judged = [self._random.random() < self._judge_share for _ in ready]
        cache, model = self._cache, batcher.model
        if not cache.on:
            return runs_of(ready, await self._infer(ready, batcher), kinds, judged)
        keys = [(lane.number, key_of(item.encoded, model)) for item in ready]
        kept = [cache.get(key) for key in keys]
        missing = [row for row, found in enumerate(kept) if found is None]
        if missing:
            inferred = await self._infer([ready[row] for row in missing], batcher)
            fresh = runs_of([ready[row] for row in missing], inferred, kinds, [judged[row] for row in missing])
            for place, row in enumerate(missing):
                cache.put(keys[row], inferred.evaluation.part(slice(place, place + 1)))
        self._watch.cached(model.name, hits=len(ready) - len(missing), misses=len(missing), size=cache.bytes)
        following = iter(fresh if missing else ())
        return [
            next(following) if found is None else kept_run(item, found, kinds, judge)
            for item, found, judge in zip(ready, kept, judged, strict=True)
        ]

    async def _infer(self, ready: Sequence[Ready], batcher: Batcher) -> Inferred:
        submitted = time.perf_counter()
        inferred = await batcher.submit([item.encoded for item in ready])
        started = submitted + inferred.queue_seconds
        self._watch.inferred(NetworkRun(batcher.model.name, len(ready), submitted, started, time.perf_counter()))
        return inferred

    def _lane(self, batcher: Batcher) -> _Lane:
        """Where the work of all requests for a network is merged."""
        lane = self._lanes.get(batcher)
        if lane is None:
            model, least = batcher.model, self._plan.least
            lane = self._lanes[batcher] = _Lane(
                Merged(self._executor, lambda items: prepared(model, items, max_moves=self._max_moves), cost=_plies),
                Merged(self._executor, lambda runs: answers(model, runs, least=least)),
                next(self._numbers),
            )
        return lane

    def _audit_soon(self, model: Model, outcomes: Sequence[Outcome], judged: int) -> None:
        """Has answers recorded after this turn of the loop, in which they go out, with all others of the turn."""
        if not self._answered:
            asyncio.get_running_loop().call_soon(self._audit)
        self._answered.append((model, outcomes, judged))

    def _audit(self) -> None:
        answered, self._answered = self._answered, []
        now = time.time()
        self._watch.judged(sum(judged for _, _, judged in answered))
        records: list[AuditRecord] = []
        failed = 0
        for model, outcomes, _ in answered:
            for outcome in outcomes:
                try:
                    record = _record_of(model, outcome, now)
                except Exception:  # a bug, which costs this record alone: the others belong to other requests
                    failed += 1
                    log.exception("an answer of model %s cannot be recorded", model.name)
                else:
                    records += [] if record is None else [record]
        self._record(records, failed)


def _record_of(model: Model, outcome: Outcome, now: float) -> AuditRecord | None:
    """The audit record of an answer; None where nothing was run."""
    if not isinstance(outcome, Answer) or outcome.leakage is None or outcome.traits is None:
        return None
    return AuditRecord(
        time=now,
        model=model.name,
        digest=model.digest,
        trained_with_mask=model.trained_with_mask,
        fen=outcome.position.fen,
        chess960=outcome.position.chess960,
        traits=outcome.traits,
        leakage=outcome.leakage,
    )
