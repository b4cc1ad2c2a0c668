"""`Queue`: the queue in front of a network, and the threads that turn waiting items into batches.

    submit ─► FairOrder ─► a thread: next_batch ─► run_batch ─► back to whoever submitted

A thread does everything from the query to the caller's result, so one thread's Python overlaps with another's network
run. Small submissions use few threads, because threads of a process contend for Python's lock; a large submission may
use all, so that one client has the whole machine. Small submissions that come in one turn of the event loop while
nothing runs are run together on it, without a change of threads. Nothing is polled, and no batch waits to fill up. One
condition guards the state.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

from movemask.errors import Overloaded, ShuttingDown
from movemask.evaluate import Answer, Query
from movemask.server.queue.fair import SHARE, FairOrder, Item

log = logging.getLogger(__name__)

#: Seconds until the threads must have ended after the queue is closed.
_CLOSES = 2.0

#: Longest time in seconds that a submission may probably hold the event loop.
_LOOP_SECONDS = 0.004

#: A run that takes longer than this many seconds is stuck.
_STUCK_SECONDS = 30.0


@dataclass(slots=True, eq=False)
class Submission:
    """Queries of one caller and, when it is done, their results.

    model : name of the model that is asked
    client : the caller's client; clients take turns
    write : makes the result of an answer and its place, on the thread that ran the network
    costs : of each query, 1 or more: how much of a batch it takes
    results : for each query what `write` returned, or an error that concerns this query alone
    error : concerns all queries
    answers : number of queries with an answer, not an error
    evaluated : places of the answers that the network gave; the others have no legal move
    unfinished : queries without a result
    submitted, started, ended : when it came, its first batch began and its last batch ended, by `perf_counter`
    """

    model: str
    client: str
    queries: Sequence[Query]
    write: Callable[[Answer, int], Any]
    costs: Sequence[float]
    cost: float = 0.0
    results: list[Any] = field(default_factory=list)
    answers: int = 0
    evaluated: list[int] = field(default_factory=list)
    unfinished: int = 0
    error: Exception | None = None
    submitted: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    future: asyncio.Future[None] | None = None


Batch = Sequence[Item[Submission]]


class Queue:
    """A bounded queue, and the threads that run its items. After `close`, `closed` is True.

    Parameters
    ----------
    run_batch : called with items and each item's seconds in the queue, on several threads at once. Returns a result for
        each item, or raises an error that concerns all their submissions
    runs, small_runs : most runs at once, a thread for each, while large submissions wait alone and otherwise
    max_batch : largest cost of a batch
    max_waiting : most items waiting, of small submissions and of large ones, each. Beyond it: Overloaded, unless none
        wait
    """

    def __init__(
        self,
        name: str,
        run_batch: Callable[[Batch, Sequence[float]], Sequence[Any]],
        *,
        runs: int,
        small_runs: int | None = None,
        max_batch: int,
        max_waiting: int,
    ) -> None:
        self.name, self._run_batch = name, run_batch
        self._small_runs = small_runs or runs
        self._max_batch, self._max_waiting = max_batch, max_waiting
        self._changed = threading.Condition()
        self._order = FairOrder[Submission]()
        self._runs: dict[int, float] = {}  # by thread, when its run began
        self._small_seconds = inf  # per cost, of the last small batch
        self._turn = False  # whether the event loop will run what has come
        self.closed = False
        self._threads = [
            threading.Thread(target=self._thread_main, name=f"network-{name}-{number}", daemon=True)
            for number in range(runs)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Items waiting for a batch."""
        return self._order.items

    @property
    def fault(self) -> str | None:
        """That a run is stuck, and for how long, as a predicate; None if none is."""
        with self._changed:
            seconds = time.perf_counter() - min(self._runs.values(), default=inf)
        if seconds < _STUCK_SECONDS:
            return None
        return f"hangs: its network has been running for {seconds:.0f} s"

    async def submit(self, submission: Submission) -> None:
        """Returns when the submission has a result for each query.

        Raises Overloaded, ShuttingDown or an error of the whole batch (a ModelError). If the caller is cancelled (its
        client disconnected), queries not yet in a batch are dropped.
        """
        if not submission.queries:
            return
        submission.cost, submission.unfinished = sum(submission.costs), len(submission.queries)
        submission.results = [None] * submission.unfinished
        submission.submitted = time.perf_counter()
        submission.future = asyncio.get_running_loop().create_future()
        try:
            if self._add(submission):
                try:
                    await asyncio.sleep(0)  # what else comes in this turn of the loop runs with it
                finally:
                    _wake_callers([one for one in self._run_turn() if one is not submission])
            if submission.unfinished and submission.error is None:
                await submission.future
        finally:
            if submission.unfinished:
                with self._changed:
                    self._order.remove(submission.client, submission)
        if submission.error is not None:
            raise submission.error

    def close(self) -> None:
        """Runs the waiting items and ends the threads, except those that are stuck. Accepts no more items."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        until = time.monotonic() + _CLOSES
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            log.error("a run of model %s does not return; the service stops without it", self.name)

    def _add(self, submission: Submission) -> bool:
        """Adds a submission. True if it is the first of a turn of the event loop, which should run them all; otherwise
        threads have been woken for it, or it is run with the first."""
        with self._changed:
            if self.closed:
                raise ShuttingDown("the service is stopping", retry_after=5)
            waiting = self._order.line(submission.cost).items
            if waiting and waiting + submission.unfinished > self._max_waiting:
                already = f"{waiting} positions are already waiting for model {self.name}"
                raise Overloaded(
                    f"{already}; the queue has room for {self._max_waiting}", retry_after=1
                )
            idle = not self._order.items and not self._runs
            items = [Item(submission, place, cost) for place, cost in enumerate(submission.costs)]
            self._order.add(submission.client, items, submission.submitted)
            quick = (
                not self._order.large.items
                and self._order.cost * self._small_seconds < _LOOP_SECONDS
            )
            if quick and (idle or self._turn):
                first, self._turn = not self._turn, True
                return first
            self._turn = False
            self._wake_threads()
            return False

    def _run_turn(self) -> list[Submission]:
        """Runs what came in this turn on the event loop, unless threads have been woken. What is complete."""
        with self._changed:
            if not self._turn:
                return []
            batch = self._take(self._order.cost + 1)  # 1 more, for what costs round to
        complete = self._run(batch)
        with self._changed:
            self._wake_threads()  # for what came from other event loops
        return complete

    def _thread_main(self) -> None:
        while batch := self._next_batch():
            _wake_callers(self._run(batch))

    def _next_batch(self) -> Batch:
        """Waits for items and takes a share of them. Empty if the queue is closed and has no items."""
        with self._changed:
            while not self._order.items or self._free_runs() < 1:
                if self.closed and not self._order.items:
                    return []
                self._changed.wait()
            share = ceil(self._order.cost / self._free_runs())
            batch = self._take(min(self._max_batch, share))
            self._wake_threads()
            return batch

    def _free_runs(self) -> int:
        """Number of runs that may begin: all for large submissions, unless a small one comes or may come."""
        large_alone = self._order.large.items and not self._order.expects_small(time.perf_counter())
        return (len(self._threads) if large_alone else self._small_runs) - len(self._runs)

    def _wake_threads(self) -> None:
        self._changed.notify(max(0, min(self._order.items, self._free_runs())))

    def _take(self, room: float) -> Batch:
        """Takes a batch of cost up to `room`, which this thread runs from now on."""
        self._turn = False
        now = time.perf_counter()
        batch = self._order.take(room, now)
        for item in batch:
            item.submission.started = item.submission.started or now
        self._runs[threading.get_ident()] = now
        return batch

    def _run(self, batch: Batch) -> list[Submission]:
        """Runs a batch. Returns the submissions that are complete."""
        began = self._runs[threading.get_ident()]
        waited = [began - item.submission.submitted for item in batch]
        submissions = list(dict.fromkeys(item.submission for item in batch))
        results: Sequence[Any] = ()
        failure: Exception | None = None
        try:
            results = self._run_batch(batch, waited)
        except Exception as error:  # a failing batch must not end the thread
            failure = error
        now = time.perf_counter()
        with self._changed:
            seconds = now - self._runs.pop(threading.get_ident())
            for (submission, place, _), result in zip(batch, results, strict=failure is None):
                submission.results[place] = result
                submission.unfinished -= 1
            for submission in submissions:
                submission.ended = now
                if failure is not None:
                    submission.error = failure
                    self._order.remove(submission.client, submission)
            if (cost := sum(item.cost for item in batch)) <= SHARE:
                self._small_seconds = seconds / cost
            if self.closed:
                self._changed.notify_all()
            return [
                submission
                for submission in submissions
                if submission.error or not submission.unfinished
            ]


def _wake_callers(complete: Sequence[Submission]) -> None:
    """Ends the wait of the callers of these submissions. Each event loop is woken once."""
    futures = [submission.future for submission in complete if submission.future is not None]
    for loop in {future.get_loop() for future in futures}:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(
                _resolve, [future for future in futures if future.get_loop() is loop]
            )


def _resolve(futures: Sequence[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():  # the caller has gone, or another batch of the submission has failed
            future.set_result(None)
