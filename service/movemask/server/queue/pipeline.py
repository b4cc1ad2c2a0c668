"""`Pipeline`: the queue in front of `evaluate.py`.

submit ─► queue ─► a thread: evaluate.run_queries ─► `write` ─► the caller
                                 └─► the recorder, for what follows the reply
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from movemask.errors import MovemaskError
from movemask.evaluate import Answer, Query, run_queries
from movemask.network.model import Model
from movemask.server.ledger.entries import AnsweredBatch
from movemask.server.queue.queue import Batch, Queue, Submission

R = TypeVar("R")

#: Playing this many moves costs the same as evaluating a position.
PLIES = 32


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

    def close(self) -> None:
        """Answers the waiting queries and accepts no more."""
        self.queue.close()

    def _run_batch(self, batch: Batch, waited: Sequence[float]) -> list[Any]:
        """Returns the result of each query. An error of one concerns no other."""
        queries = [item.submission.queries[item.place] for item in batch]
        outcomes, evaluated = run_queries(self.model, queries, waited, self._max_moves)
        results: list[Any] = []
        for (submission, place, _), outcome in zip(batch, outcomes, strict=True):
            results.append(_written(submission, place, outcome))
            if isinstance(outcome, Answer) and outcome.evaluated is not None:
                submission.evaluated.append(place)
        answers = [outcome for outcome in outcomes if isinstance(outcome, Answer)]
        self._record(AnsweredBatch(self.model, answers, evaluated, time.time()))
        return results


@dataclass(frozen=True, slots=True)
class ClientPipeline:
    """A pipeline that submits for one client: the server's `evaluate.Evaluator`.

    done : gets each submission when its results have come
    """

    pipeline: Pipeline
    client: str
    done: Callable[[Submission], None]

    @property
    def model(self) -> Model:
        """The model that answers."""
        return self.pipeline.model

    async def submit(
        self, queries: Sequence[Query], write: Callable[[Answer, int], R]
    ) -> list[R | MovemaskError]:
        """As `evaluate.Evaluator.submit`. If the caller is cancelled, queries not yet in a batch are dropped."""
        costs = [1 + len(query.moves) / PLIES for query in queries]
        submission = Submission(self.pipeline.model.name, self.client, queries, write, costs)
        await self.pipeline.queue.submit(submission)
        for result in submission.results:
            if not isinstance(result, Exception):
                submission.answers += 1
            elif not isinstance(result, MovemaskError):
                raise result  # a bug in `write`
        self.done(submission)
        return submission.results


def _written(submission: Submission, place: int, outcome: Answer | MovemaskError) -> Any:
    """Returns what the submission makes of an answer, or the error."""
    if isinstance(outcome, MovemaskError):
        return outcome
    try:
        return submission.write(outcome, place)
    except Exception as error:
        return error
