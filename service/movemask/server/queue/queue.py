"""`Queue`: the bounded queue in front of a network, and the threads that run it in batches.

    submit ─► FairOrder ─► a thread: _next_batch ─► run_batch ─► the caller of submit

A thread does all the work from the query to the caller's result. So one thread's Python overlaps
with another's network run. Small submissions use few threads, because the threads of a process
contend for Python's lock. A large submission may use all threads, so that one client can use the
whole machine.

If no network is running, quick submissions need no thread. All that arrive in one iteration of the
event loop run together on it, which saves the switch of threads. Nothing is polled, and no batch
waits to fill up. One condition guards the state.
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

#: Seconds that `close` waits for the threads to end.
_CLOSE_TIMEOUT = 2.0

#: Submissions run on the event loop if they are expected to hold it for less than these seconds.
_MAX_LOOP_SECONDS = 0.004

#: A run that takes longer than these seconds is stuck.
_STUCK_SECONDS = 30.0


@dataclass(slots=True, eq=False)
class Submission:
    """Queries of one caller and, when it is done, their results in the same order.

    model : name of the model that answers
    client : the caller's client; clients take turns
    write : makes the result of an answer and its place, on the thread that ran the network
    costs : cost of each query, 1 or more: how much of a batch it takes
    cost : their sum
    results : for each query what `write` returned, or an error that concerns this query alone
    answers : number of queries with an answer, not an error
    evaluated : places of the answers that the network gave; the others have no legal move
    unfinished : number of queries without a result
    error : an error that concerns all queries
    submitted : `perf_counter` when it arrived
    started, ended : `perf_counter` at the start of its first batch and the end of its last
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
    run_batch : called with items and the seconds that each has waited, on several threads at once. Returns a result
        for each item, or raises an error that concerns all their submissions
    runs : number of calls of `run_batch` at once, each on a thread of its own. A large submission may use all of them
    small_runs : number of calls at once while small submissions wait or are expected; by default `runs`
    max_batch : largest cost of a batch
    max_waiting : largest number of waiting items, for small and for large submissions separately. If none wait, a
        submission of any size is accepted
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
        self.name = name
        self.closed = False
        self._run_batch = run_batch
        self._small_runs = small_runs or runs
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._changed = threading.Condition()
        self._order = FairOrder[Submission]()
        self._run_starts: dict[int, float] = {}  # of the current runs, by thread
        self._small_seconds = inf  # seconds per cost in the last small batch
        self._loop_will_run = False  # whether the event loop is about to run all waiting items
        self._threads = [
            threading.Thread(target=self._thread_main, name=f"network-{name}-{number}", daemon=True)
            for number in range(runs)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Number of items that wait for a batch."""
        return self._order.waiting

    @property
    def fault(self) -> str | None:
        """What is wrong with a stuck run, such as "hangs: …"; None if no run is stuck."""
        with self._changed:
            seconds = time.perf_counter() - min(self._run_starts.values(), default=inf)
        if seconds < _STUCK_SECONDS:
            return None
        return f"hangs: its network has been running for {seconds:.0f} s"

    async def submit(self, submission: Submission) -> None:
        """Returns when the submission has a result for each query.

        Raises Overloaded, ShuttingDown, or what `run_batch` raised for one of its batches. If the caller is cancelled
        because its client disconnected, queries not yet in a batch are dropped.
        """
        if not submission.queries:
            return
        submission.cost = sum(submission.costs)
        submission.unfinished = len(submission.queries)
        submission.results = [None] * submission.unfinished
        submission.submitted = time.perf_counter()
        submission.future = asyncio.get_running_loop().create_future()
        try:
            if self._add(submission):
                try:
                    # Other submissions of this iteration of the loop arrive, and run with this one.
                    await asyncio.sleep(0)
                finally:
                    finished = self._run_on_loop()
                    _wake_callers([other for other in finished if other is not submission])
            if submission.unfinished and submission.error is None:
                await submission.future
        finally:
            if submission.unfinished:
                with self._changed:
                    self._order.remove(submission.client, submission)
        if submission.error is not None:
            raise submission.error

    def close(self) -> None:
        """Runs the waiting items and ends the threads that are not stuck. Accepts no more items."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + _CLOSE_TIMEOUT
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            log.error("a run of model %s does not return; the service stops without it", self.name)

    def _add(self, submission: Submission) -> bool:
        """Adds the items of a submission. Returns whether its caller must call `_run_on_loop`.

        If not, the caller of an earlier submission will, or threads have been woken.
        """
        with self._changed:
            if self.closed:
                raise ShuttingDown("the service is stopping", retry_after=5)
            self._check_capacity(submission)
            is_idle = not self._order.waiting and not self._run_starts
            items = [Item(submission, place, cost) for place, cost in enumerate(submission.costs)]
            self._order.add(submission.client, items, submission.submitted)
            if self._is_quick() and (is_idle or self._loop_will_run):
                is_first = not self._loop_will_run
                self._loop_will_run = True
                return is_first
            self._loop_will_run = False
            self._wake_threads()
            return False

    def _check_capacity(self, submission: Submission) -> None:
        """Raises Overloaded if items are waiting and the submission does not fit beside them."""
        waiting = self._order.line(submission.cost).waiting
        if waiting and waiting + submission.unfinished > self._max_waiting:
            raise Overloaded(
                f"{waiting} positions are already waiting for model {self.name}; "
                f"the queue has room for {self._max_waiting}",
                retry_after=1,
            )

    def _is_quick(self) -> bool:
        """Returns whether all waiting items are small and expected to run within
        `_MAX_LOOP_SECONDS`.
        """
        expected_seconds = self._order.cost * self._small_seconds
        return not self._order.large.waiting and expected_seconds < _MAX_LOOP_SECONDS

    def _run_on_loop(self) -> list[Submission]:
        """Runs all waiting items on the event loop, unless threads have been woken for them.

        Returns the submissions that are finished.
        """
        with self._changed:
            if not self._loop_will_run:
                return []
            # 1 more, because the sum of the costs may be rounded down.
            batch = self._take(self._order.cost + 1)
        finished = self._run(batch)
        with self._changed:
            self._wake_threads()  # for items that came from another event loop during the run
        return finished

    def _thread_main(self) -> None:
        while batch := self._next_batch():
            _wake_callers(self._run(batch))

    def _next_batch(self) -> Batch:
        """Waits for items and takes a share of them. Empty if the queue is closed and empty."""
        with self._changed:
            while not self._order.waiting or self._free_runs() < 1:
                if self.closed and not self._order.waiting:
                    return []
                self._changed.wait()
            share = ceil(self._order.cost / self._free_runs())
            batch = self._take(min(self._max_batch, share))
            self._wake_threads()
            return batch

    def _free_runs(self) -> int:
        """Returns the number of runs that may start.

        Large submissions may use all threads, unless small ones wait or are expected.
        """
        expects_small = self._order.expects_small(time.perf_counter())
        only_large = self._order.large.waiting and not expects_small
        max_runs = len(self._threads) if only_large else self._small_runs
        return max_runs - len(self._run_starts)

    def _wake_threads(self) -> None:
        self._changed.notify(max(0, min(self._order.waiting, self._free_runs())))

    def _take(self, max_cost: float) -> Batch:
        """Takes a batch of about `max_cost`, and starts this thread's run of it."""
        self._loop_will_run = False
        now = time.perf_counter()
        batch = self._order.take(max_cost, now)
        for item in batch:
            item.submission.started = item.submission.started or now
        self._run_starts[threading.get_ident()] = now
        return batch

    def _run(self, batch: Batch) -> list[Submission]:
        """Runs a batch. Returns the submissions that are finished."""
        start = self._run_starts[threading.get_ident()]
        waited = [start - item.submission.submitted for item in batch]
        try:
            results = self._run_batch(batch, waited)
        except Exception as error:  # a failing batch must not end the thread
            return self._finish(batch, [], error)
        return self._finish(batch, results, None)

    def _finish(
        self, batch: Batch, results: Sequence[Any], error: Exception | None
    ) -> list[Submission]:
        """Stores the results of a run, or its error. Returns the submissions that are finished."""
        end = time.perf_counter()
        submissions = list(dict.fromkeys(item.submission for item in batch))
        cost = sum(item.cost for item in batch)
        with self._changed:
            seconds = end - self._run_starts.pop(threading.get_ident())
            if error is None:
                for (submission, place, _), result in zip(batch, results, strict=True):
                    submission.results[place] = result
                    submission.unfinished -= 1
            for submission in submissions:
                submission.ended = end
                if error is not None:
                    submission.error = error
                    self._order.remove(submission.client, submission)
            if cost <= SHARE:
                self._small_seconds = seconds / cost
            if self.closed:
                self._changed.notify_all()
            return [
                submission
                for submission in submissions
                if submission.error is not None or not submission.unfinished
            ]


def _wake_callers(finished: Sequence[Submission]) -> None:
    """Wakes the callers of these submissions. Each event loop is woken once."""
    futures = [submission.future for submission in finished if submission.future is not None]
    for loop in {future.get_loop() for future in futures}:
        futures_of_loop = [future for future in futures if future.get_loop() is loop]
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_resolve, futures_of_loop)


def _resolve(futures: Sequence[asyncio.Future[None]]) -> None:
    for future in futures:
        # It is done if the caller was cancelled, or another batch of the submission failed.
        if not future.done():
            future.set_result(None)
