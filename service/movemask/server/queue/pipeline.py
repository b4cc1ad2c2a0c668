"""`Pipeline`: the queue in front of `evaluate.py`.

submit ─► queue ─► a thread: evaluate.run_queries ─► `write` ─► the caller
                                 └─► the recorder, for what follows the reply
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from movemask.errors import MovemaskError
from movemask.evaluate import Answer, Evaluator, Query, run_queries, written
from movemask.network.model import Model
from movemask.server.ledger.entries import AnsweredBatch
from movemask.server.queue.queue import Queue, Submission

R = TypeVar("R")

#: Playing this many moves costs the same as evaluating a position.
PLIES = 32


@dataclass(frozen=True, slots=True)
class DoneSubmission:
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

    def done(self, submission: DoneSubmission) -> None:
        """Called on the event loop when a submission of this caller is done."""


class Pipeline:
    """Answers queries with one model, in batches from its `queue`. Clients take turns; small requests go first.

    Parameters
    ----------
    record : takes each answered batch before its replies go out, and returns at once
    max_batch, max_waiting : as for `Queue`. A query costs 1, and 1/32 more for each of its moves
    workers : processes that share the cores; small requests use no more than this process's part
    max_moves : limit of `Query.moves`
    """

    def __init__(
        self,
        model: Model,
        record: Callable[[AnsweredBatch], None] = lambda batch: None,
        *,
        max_batch: int,
        max_waiting: int,
        workers: int = 1,
        max_moves: int | None = None,
    ) -> None:
        self.model = model
        self._record, self._max_moves = record, max_moves
        self.queue = Queue(
            model.name,
            self._run_batch,
            runs=model.session.runs,
            small_runs=max(1, model.session.runs // workers),
            max_batch=max_batch,
            max_waiting=max_waiting,
        )

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
            caller.done(DoneSubmission(self.model.name, answers, evaluated, submission))
        return results

    def for_caller(self, caller: Caller) -> Evaluator:
        """The pipeline for one caller's queries."""
        return _ForCaller(self, caller)

    def close(self) -> None:
        """Answers the waiting queries and accepts no more."""
        self.queue.close()

    def _run_batch(
        self, items: Sequence[tuple[Query, Callable[[Answer], R]]], waited: Sequence[float]
    ) -> list[tuple[R | Exception, bool]]:
        """The result of each query, and whether the network gave its answer."""
        outcomes, evaluated = run_queries(
            self.model, [query for query, _ in items], waited, self._max_moves
        )
        answers = [outcome for outcome in outcomes if isinstance(outcome, Answer)]
        results = [
            (written(outcome, write), isinstance(outcome, Answer) and outcome.evaluated is not None)
            for outcome, (_, write) in zip(outcomes, items, strict=True)
        ]
        self._record(AnsweredBatch(self.model, answers, evaluated, time.time()))
        return results


@dataclass(frozen=True, slots=True)
class _ForCaller:
    pipeline: Pipeline
    caller: Caller

    @property
    def model(self) -> Model:
        return self.pipeline.model

    async def submit(
        self, items: Sequence[tuple[Query, Callable[[Answer], R]]]
    ) -> list[R | MovemaskError]:
        return await self.pipeline.submit(items, self.caller)
