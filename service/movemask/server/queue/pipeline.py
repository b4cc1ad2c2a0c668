"""`Pipeline`: the queue in front of `evaluate.py`, and what follows the replies.

submit ─► queue ─► a thread: evaluate.run_queries ─► `write` ─► the caller
                                 └─► after the reply: metrics; kinds, heavy slots ─► the recorder
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, TypeVar

import numpy as np

from movemask.errors import MovemaskError
from movemask.evaluate import Answer, Evaluated, Evaluator, Query, run_queries, written
from movemask.leakage.kinds import Plan
from movemask.leakage.measure import UnmaskedLogits, measure
from movemask.network.model import Batch, Model
from movemask.server.ledger.entries import LedgerBatch
from movemask.server.queue.follow_up import FollowUp
from movemask.server.queue.queue import Queue, Submission

R = TypeVar("R")

#: Playing this many moves costs the same as evaluating a position.
PLIES = 32


@dataclass(frozen=True, slots=True)
class Run:
    """A submission that is done.

    model : the model's name
    answers : queries with an answer, not an error
    evaluated : answers that the network gave; the others have no legal move
    """

    model: str
    answers: int
    evaluated: int
    submission: Submission


class Caller(Protocol):
    """The sender of queries. Clients take turns."""

    @property
    def client(self) -> str: ...

    def done(self, run: Run) -> None:
        """Called on the event loop when a submission of this caller is done."""


@dataclass(frozen=True, slots=True)
class DoneBatch:
    """Queries that ran together, as metrics and the ledger see them.

    answers : without the queries that failed
    evaluated : None if no position has a legal move
    time : in seconds since 1970
    """

    answers: Sequence[Answer]
    evaluated: Evaluated | None
    time: float


class Recording(Protocol):
    """Records answers. Implemented by `server.ledger.recorder.Recorder`."""

    def record(self, batches: Sequence[LedgerBatch], lost: int = 0) -> None:
        """Takes batches, and the number of answers that no batch could be made of. Returns at once."""


class Pipeline:
    """Answers queries with one model, in batches from its `queue`. Clients take turns; small requests go first.

    Parameters
    ----------
    recorder : writes the answers to the ledger; None: nothing is kept
    max_batch, max_waiting : as for `Queue`. A query costs 1, and 1/32 more for each of its moves
    workers : processes that share the cores; small requests use no more than this process's part
    max_moves : limit of `Query.moves`
    plan : the kinds of leakage to measure
    on_done : after the replies, gets the model's name, the finished batches, and how many queries wait
    """

    def __init__(
        self,
        model: Model,
        recorder: Recording | None = None,
        *,
        max_batch: int,
        max_waiting: int,
        workers: int = 1,
        max_moves: int | None = None,
        plan: Plan | None = None,
        on_done: Callable[[str, Sequence[DoneBatch], int], None] = lambda model, batches, waiting: None,
    ) -> None:
        self.model = model
        self._recorder = recorder
        self._max_moves = max_moves
        self._plan = plan or Plan()
        self._on_done = on_done
        self.queue = Queue(
            model.name,
            self._run_batch,
            threads=model.session.at_once,
            small_threads=max(1, model.session.at_once // workers),
            max_batch=max_batch,
            max_waiting=max_waiting,
        )
        self.after = FollowUp(model.name, self._follow_up)

    async def submit(
        self, items: Sequence[tuple[Query, Callable[[Answer], R]]], caller: Caller | None = None
    ) -> list[R | MovemaskError]:
        """As `evaluate.Evaluator.submit`. `write` is called on the thread that ran the batch.

        If the caller is cancelled, queries not yet in a batch are dropped.
        """
        costs = [1 + len(query.moves) / PLIES for query, _ in items]
        submission = await self.queue.submit(items, "" if caller is None else caller.client, costs)
        results: list[R | MovemaskError] = []
        answers = evaluated = 0
        for result, ran in submission.results:
            if not isinstance(result, Exception):
                answers += 1
                evaluated += ran
            elif not isinstance(result, MovemaskError):  # a bug in `write`
                raise result
            results.append(result)
        if caller is not None:
            caller.done(Run(self.model.name, answers, evaluated, submission))
        return results

    def for_caller(self, caller: Caller) -> Evaluator:
        """The pipeline for one caller's queries."""
        return _ForCaller(self, caller)

    def close(self) -> None:
        """Answers the waiting queries and accepts no more."""
        self.queue.close()
        self.after.close()

    def _run_batch(
        self, items: Sequence[tuple[Query, Callable[[Answer], R]]], waited: Sequence[float]
    ) -> list[tuple[R | Exception, bool]]:
        """The result of each query, and whether the network gave its answer."""
        outcomes, evaluated = run_queries(self.model, [query for query, _ in items], waited, self._max_moves)
        answers = [outcome for outcome in outcomes if isinstance(outcome, Answer)]
        results = [
            (written(outcome, write), isinstance(outcome, Answer) and outcome.evaluated is not None)
            for outcome, (_, write) in zip(outcomes, items, strict=True)
        ]
        self.after.put(DoneBatch(answers, evaluated, time.time()))
        return results

    def _follow_up(self, batches: Sequence[DoneBatch]) -> None:
        """Feeds metrics and the ledger, for many batches at once, after their replies."""
        recorded: list[LedgerBatch] = []
        try:
            self._on_done(self.model.name, batches, self.queue.waiting)
            if self._recorder is None:
                return
            measured = [batch for batch in batches if batch.evaluated is not None]
            if measured:  # one draw for all: every kind costs most for the first position of a write
                recorded = [self._ledger_batch(self._plan.drawn(random.random()), measured)]
        finally:
            if self._recorder is not None:
                answers = sum(answer.evaluated is not None for batch in batches for answer in batch.answers)
                self._recorder.record(recorded, lost=answers - sum(map(len, recorded)))

    def _ledger_batch(self, kinds: Sequence[str], batches: Sequence[DoneBatch]) -> LedgerBatch:
        """Evaluated batches, joined for the ledger. The logits are read here; the recorder computes the rest."""
        model = self.model
        results = [batch.evaluated for batch in batches if batch.evaluated is not None]
        joined = Batch.joined([evaluated.batch for evaluated in results])
        unmasked = UnmaskedLogits.joined([evaluated.unmasked for evaluated in results])
        sizes = [len(evaluated.batch) for evaluated in results]
        starts = accumulate(sizes, initial=0)
        answers = {  # by row of the joined batch; not all have one
            start + answer.row: answer
            for start, batch in zip(starts, batches, strict=False)
            for answer in batch.answers
            if answer.evaluated is not None
        }
        elos = [answers[row].query.elo if row in answers else None for row in range(len(joined))]
        made = LedgerBatch(
            model=model,
            times=np.repeat([batch.time for batch in batches], sizes),
            elos=[None if elo is None else elo.self for elo in elos],
            batch=joined,
            measured=measure(kinds, unmasked, model.vocabulary, joined.boards.black),
            heavy=unmasked.heavy(self._plan.least),
        )
        return made if len(answers) == len(joined) else made.rows(np.array(sorted(answers), dtype=np.intp))


@dataclass(frozen=True, slots=True)
class _ForCaller:
    pipeline: Pipeline
    caller: Caller

    @property
    def model(self) -> Model:
        return self.pipeline.model

    async def submit(self, items: Sequence[tuple[Query, Callable[[Answer], R]]]) -> list[R | MovemaskError]:
        return await self.pipeline.submit(items, self.caller)
