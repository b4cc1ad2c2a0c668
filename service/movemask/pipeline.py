"""The way of a request on one page: queries → batch → network → policies and leakage → answers → audit.

    queries ─► queue ─► read ─► Batch ─► evaluate ─► check ─► Answer ─► `write` ─► the caller
                                            └─► after the reply: kinds, heavy slots ─► the recorder

All of it runs on a thread of the queue, for every query that waits there.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from movemask.answer import Answer, Query, Timing
from movemask.board.position import Elo, Position
from movemask.errors import MovemaskError, ServedLeakage
from movemask.evaluation import Evaluated, Network, evaluate
from movemask.leakage.audited import Audited
from movemask.leakage.kinds import Plan
from movemask.leakage.measure import LogitBatch, measure
from movemask.leakage.served import check_answer
from movemask.network.batch import Batch
from movemask.network.model import Model
from movemask.network.queue import Delivery, Queue
from movemask.policy import Rule

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Done:
    """A batch that was answered, as the follow-up needs it: `rows` are the answers of the evaluated batch."""

    statuses: list[str]
    evaluated: Evaluated | None = None
    rows: Sequence[Answer | MovemaskError] = ()
    waited: Sequence[float] = ()
    waiting: int = 0
    time: float = 0.0


class Events:
    """Event observer, called on the queue's threads. The base class ignores every event."""

    def ran(self, model: str, size: int, seconds: float, waiting: int, waited: Sequence[float]) -> None:
        """A network ran a batch of `size`; `waited` is each query's time in the queue, `waiting` the queue's length."""

    def answered(self, model: str, statuses: Sequence[str]) -> None:
        """Positions were answered."""


class Caller:
    """Who asks a pipeline. Callers with the same `client` take turns in the queue as one."""

    client = ""

    def delivered(self, model: str, delivery: Delivery[object], ran: int) -> None:
        """The results of one submission are back in the task that asked; the network ran on `ran` of its positions."""


_NO_EVENTS, _NOBODY = Events(), Caller()


class Pipeline:
    """Answers queries by one model in batches of whatever waits; clients take turns, and few queries go before many.

    Parameters
    ----------
    record : takes batches to be audited, and returns at once; none if they could not be made
    expect : called on the same thread before the answers go out, with how many positions `record` is about to get
    max_batch, max_waiting : limits of the queue, in positions
    max_seconds : limit of the time that queries may wait; None for none
    max_moves : limit of `Query.moves`
    plan : which kinds of leakage are measured
    network : replaces `model.evaluate`
    """

    def __init__(
        self,
        model: Model,
        record: Callable[[Sequence[Audited]], None],
        *,
        expect: Callable[[int], None] = lambda positions: None,
        max_batch: int,
        max_waiting: int,
        max_seconds: float | None = None,
        max_moves: int | None = None,
        plan: Plan | None = None,
        network: Network | None = None,
        events: Events = _NO_EVENTS,
    ) -> None:
        self.model = model
        self._record = record
        self._expect = expect
        self._max_moves = max_moves
        self._plan = Plan() if plan is None else plan
        self._network = network or model.evaluate
        self._events = events
        self._random = random.Random()
        self._caller = _NOBODY
        self._queue = Queue[Query, Answer, _Done](
            model.name,
            self._answer,
            self._follow_up,
            threads=model.session.at_once,
            max_batch=max_batch,
            max_waiting=max_waiting,
            max_seconds=max_seconds,
        )

    @property
    def alive(self) -> bool:
        """Whether queries are taken."""
        return self._queue.alive

    @property
    def waiting(self) -> int:
        """Queries that wait for a batch."""
        return self._queue.waiting

    def for_caller(self, caller: Caller) -> Pipeline:
        """This pipeline, with the same queue, on behalf of a caller."""
        own = copy(self)
        own._caller = caller
        return own

    async def evaluate(self, queries: Sequence[Query], write: Callable[[Answer], R]) -> Sequence[R | MovemaskError]:
        """For each query in order, `write(answer)`, called on the queue's thread, or the query's error.

        Raises errors that concern all queries: Overloaded, ShuttingDown, InferenceFailed. Queries whose caller is
        cancelled before they reach a batch are dropped.
        """
        if not queries:
            return []
        delivery = await self._queue.submit(queries, lambda answer: (answer.ran, write(answer)), self._caller.client)
        results: list[R | MovemaskError] = []
        ran = 0
        for one in delivery.results:
            if isinstance(one, MovemaskError):
                results.append(one)
            else:
                ran += one[0]
                results.append(one[1])
        self._caller.delivered(self.model.name, delivery, ran)
        return results

    def close(self) -> None:
        """Answers the waiting queries and accepts no more."""
        self._queue.close()

    def _answer(self, queries: Sequence[Query], waited: Sequence[float]) -> tuple[list[Answer | MovemaskError], _Done]:
        """An answer or an error for each query, and what is left to do after the reply."""
        outcomes: dict[int, Answer | MovemaskError] = {}
        read: list[tuple[int, Position, Rule]] = []
        for place, query in enumerate(queries):
            try:
                read.append((place, *self._read(query)))
            except MovemaskError as error:
                outcomes[place] = error
        evaluated: Evaluated | None = None
        places: list[int] = []
        if read:
            batch, refused = self.model.batch(
                [position for _, position, _ in read], [queries[place].elo for place, _, _ in read]
            )
            counts = batch.counts
            elo = batch.elo.tolist()
            rows: list[int] = []
            for row, (place, position, rule) in enumerate(read):
                if row in refused:
                    outcomes[place] = refused[row]
                elif not counts[row]:
                    outcomes[place] = Answer(self.model, queries[place], position, rule, _elo_of(elo[row]))
                else:
                    rows.append(row)
            if rows:
                batch = batch.rows(np.array(rows, dtype=np.intp))
                evaluated = evaluate(self.model, batch, [read[row][2] for row in rows], self._network)
                failed = {**evaluated.unusable, **self._check(evaluated)}
                for kept, row in enumerate(rows):
                    place, position, rule = read[row]
                    places.append(place)
                    outcomes[place] = failed.get(kept) or Answer(
                        self.model,
                        queries[place],
                        position,
                        rule,
                        _elo_of(elo[row]),
                        evaluated,
                        kept,
                        Timing(waited[place], evaluated.seconds),
                    )
        answers = [outcomes[place] for place in range(len(queries))]

        statuses = [one.status for one in answers if isinstance(one, Answer)]
        if evaluated is None:  # nothing to audit
            return answers, _Done(statuses)
        self._expect(len(places))
        audited = [answers[place] for place in places]
        own = [waited[place] for place in places]
        return answers, _Done(statuses, evaluated, audited, own, self._queue.waiting, time.time())

    def _follow_up(self, done: Sequence[_Done]) -> None:
        """What is left to do once the replies are out: event counts, and the audit, many batches at once."""
        audited: list[Audited] = []
        try:
            for one in done:
                self._events.answered(self.model.name, one.statuses)
                if one.evaluated is not None and one.evaluated.ran:
                    ran, seconds = one.evaluated.ran, one.evaluated.seconds
                    self._events.ran(self.model.name, ran, seconds, one.waiting, one.waited)
            by_kinds: dict[tuple[str, ...], list[_Done]] = defaultdict(list)
            for one in done:
                if one.evaluated is not None:
                    by_kinds[self._plan.drawn(self._random.random())].append(one)
            audited = [self._audited(kinds, batches) for kinds, batches in by_kinds.items()]
        finally:
            self._record(audited)

    def _read(self, query: Query) -> tuple[Position, Rule]:
        """The position of a query, and its rule with the temperature resolved to a number."""
        position = query.position
        if position is None:
            position = Position.read(query.fen, query.moves, chess960=query.chess960, max_moves=self._max_moves)
        rule = query.rule
        if rule.calibrated:
            rule = replace(rule, temperature=self.model.calibrated_temperature())
        return position, rule

    def _check(self, evaluated: Evaluated) -> dict[int, MovemaskError]:
        """The answers that must not be served, by row."""
        failed: dict[int, MovemaskError] = {}
        batch = evaluated.batch
        all_legal, bounds = batch.codes.tolist(), batch.indptr.tolist()
        codes, probabilities, indptr, abstention = evaluated.policies.lists
        for row, position in enumerate(batch.positions):
            legal, moves = all_legal[bounds[row] : bounds[row + 1]], slice(indptr[row], indptr[row + 1])
            try:
                check_answer(position, legal, codes[moves], probabilities[moves], abstention[row])
            except ServedLeakage as error:
                failed[row] = error
        return failed

    def _audited(self, kinds: Sequence[str], done: Sequence[_Done]) -> Audited:
        """What the audit needs of batches. All that needs logits is computed here, the rest by the recorder."""
        evaluated = [one.evaluated for one in done if one.evaluated is not None]
        batch = Batch.joined([one.batch for one in evaluated])
        unmasked = LogitBatch.joined([one.unmasked for one in evaluated])
        model, answers = self.model, [answer for one in done for answer in one.rows]
        elos = [answer.query.elo if isinstance(answer, Answer) else None for answer in answers]
        return Audited(
            times=[one.time for one in done for _ in one.rows],
            model=model.name,
            digest=model.digest,
            trained_with_mask=model.trained_with_mask,
            vocabulary=model.vocabulary,
            positions=batch.positions,
            boards=batch.boards,
            in_check=batch.in_check,
            codes=batch.codes,
            indptr=batch.indptr,
            measured=measure(kinds, unmasked, model.vocabulary, batch.boards.black),
            heavy=unmasked.heavy(self._plan.least),
            elos=[None if elo is None else elo.self for elo in elos],
            unanswered=frozenset(row for row, answer in enumerate(answers) if not isinstance(answer, Answer)),
        )


def _elo_of(ratings: Sequence[float]) -> Elo | None:
    """The ratings in a row of `Batch.elo`; None if NaN, as for a network that takes none."""
    mover, opponent = ratings
    return None if mover != mover else Elo(mover, opponent)
