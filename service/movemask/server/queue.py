"""`Queue`: the queue in front of a network, and the threads that turn waiting items into batches.

There is a thread for each simultaneous run of the session. An idle thread takes its share of the waiting items and does
everything from the query to the caller's result, so one thread's Python overlaps with another's network run. Nothing is
polled, and no batch waits to fill up. `Backlog` owns the state, and only its methods change it. `fair.py` decides which
items come next, `pace.py` predicts how long they take.

A small submission that finds the queue empty runs on the event loop, without a change of threads. The queue does not
look into items and results. An item is a query of the pipeline with its `write`; a result is what `write` returned, or
an error.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any

from movemask.errors import Overloaded, ShuttingDown
from movemask.server.fair import Entry, FairOrder, Portion
from movemask.server.pace import Pace
from movemask.server.tally import RUNNING, WAITING, Tally

log = logging.getLogger(__name__)

#: Seconds until the threads must have ended after the queue is closed.
_CLOSES = 2.0

#: Longest time in seconds that a lone submission may hold the event loop.
_LOOP_SECONDS = 0.004

#: Finished batches are followed up when the queue has been quiet for this many seconds ...
_QUIET_SECONDS = 0.005
#: ... or when the oldest of them began this many seconds ago.
_OLDEST_SECONDS = 0.1

#: Small submissions may use 1/8 more than the limit of waiting items.
_RESERVE = 8


@dataclass(slots=True, eq=False)
class Submission(Entry):
    """Items submitted together, and their results in the same order. An `error` concerns all items.

    unfinished : items without a result
    submitted, started, ended : when it came, its first batch began and its last batch ended, by `time.perf_counter`
    """

    items: Sequence[Any] = field(kw_only=True)
    future: asyncio.Future[None] = field(kw_only=True)
    submitted: float = field(kw_only=True)
    started: float = 0.0
    ended: float = 0.0
    error: Exception | None = None
    unfinished: int = field(init=False)
    results: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.unfinished, self.results = len(self.items), [None] * len(self.items)


class Backlog:
    """The state of a queue: the waiting items, the running batches, the batches to follow up. Safe for threads.

    Parameters
    ----------
    name : the model's, for messages
    threads : number of threads that take batches
    max_batch, max_waiting, max_seconds, tally : as for `Queue`
    """

    def __init__(
        self, name: str, *, threads: int, max_batch: int, max_waiting: int, max_seconds: float | None, tally: Tally
    ) -> None:
        self._name, self._threads = name, threads
        self._max_batch, self._max_waiting, self._max_seconds = max_batch, max_waiting, max_seconds
        self._tally = tally
        self._changed = threading.Condition()
        self._order = FairOrder[Submission]()
        self._pace = Pace()
        self._counted = 0  # this queue's share of the tally's waiting items
        self._closing = False
        self._idle, self._busy = threads, 0  # idle threads, and threads that run a batch
        # Small submissions use one thread per process: a second would only contend for Python's lock.
        self._for_small = max(1, threads // tally.processes)
        self._running: dict[str, tuple[float, float]] = {}  # by thread: its batch's start and cost
        self._active = 0.0  # time of the last arrival or delivery
        self._finished: list[Any] = []  # batches to follow up
        self._finished_items, self._oldest = 0, 0.0  # items in them, and the start of the first

    @property
    def items(self) -> int:
        """Items that wait for a batch."""
        return self._order.items

    def add(self, submission: Submission) -> bool:
        """Adds a submission. True if the event loop should run it; otherwise threads have been woken for it.

        Raises Overloaded or ShuttingDown.
        """
        with self._changed:
            if self._closing:
                raise ShuttingDown("the service is stopping", retry_after=5)
            self._admit(submission)
            lone = not self._order.items and self._idle == self._threads
            self._order.add(submission, submission.submitted)
            self._count()
            self._active = submission.submitted
            if lone and submission.small and self._pace.seconds_alone(submission.costs[-1]) < _LOOP_SECONDS:
                return True
            self._wake_threads()
            return False

    def _admit(self, submission: Submission) -> None:
        """Raises Overloaded if too many items would wait, or if this submission would wait too long."""
        waiting, size = self._order.items, submission.items_left
        if not waiting:
            return
        reserve = self._max_waiting // _RESERVE if submission.small else 0
        room = self._max_waiting + reserve
        cost = self._order.cost_before(submission, self._pace.slice) + submission.cost_left
        seconds = self._pace.seconds(cost) / self._threads
        # Small submissions always have this process's part of the reserve, even if other processes' queues are full.
        reserved = submission.small and self._order.small_items + size <= reserve // self._tally.processes
        if self._tally.total(WAITING) + size > room and not reserved:
            limit = f"the queue has room for {room}"
        elif self._max_seconds is not None and seconds > self._max_seconds:
            limit = f"{size} more would be answered in {seconds:.1f} s, later than {self._max_seconds:g} s"
        else:
            return
        raise Overloaded(
            f"{waiting} positions are already waiting for model {self._name}; {limit}",
            retry_after=max(1, round(self._pace.seconds(self._order.cost) / self._threads)),
        )

    def drop(self, submission: Submission) -> None:
        """Removes the items not yet in a batch, because their caller has gone."""
        if submission.items_left:
            with self._changed:
                self._order.remove(submission)
                self._count()

    def take_lone(self, submission: Submission) -> list[Portion[Submission]]:
        """A batch of the submission if it is still alone in the queue; otherwise empty, and threads are woken."""
        with self._changed:
            lone = not submission.taken and self._order.items == submission.items_left
            if not lone or self._idle < self._threads:
                self._wake_threads()
                return []
            return self._take(submission.costs[-1])

    def next_batch(self) -> list[Portion[Submission]]:
        """Waits for items and takes a share of them. The calling thread counts as busy until `idle`.

        Empty if finished batches are due for their follow-up, or if the queue is closed and has no items.
        """
        with self._changed:
            while not (self._order.items and self._free_threads()) and not (self._closing and not self._order.items):
                timeout = None
                if self._finished:
                    timeout = self._due_at() - time.perf_counter()
                    if timeout <= 0:
                        break
                self._changed.wait(timeout)
            # An even split among the threads that may take items, rounded up.
            share = -(-self._order.cost // max(1, self._free_threads()))
            self._idle -= 1
            portions = self._take(min(self._max_batch, share))
            self._busy += bool(portions)
            return portions

    def _take(self, room: float) -> list[Portion[Submission]]:
        """A batch of cost up to `room`, which starts now."""
        now = time.perf_counter()
        portions = self._order.take(room, self._pace.slice, now)
        self._count()
        for portion in portions:
            if portion.first == 0:
                portion.entry.started = now
        if portions:
            self._running[threading.current_thread().name] = now, sum(portion.cost for portion in portions)
            self._tally.add(RUNNING, 1)
        return portions

    def returned(self, portions: Sequence[Portion[Submission]], failure: Exception | None = None) -> list[Submission]:
        """Records that this thread's batch has its results or failed. Returns the submissions that are complete.

        Must be called before the callers are woken, so that a probe right after an answer does not see a hanging batch.
        """
        complete = []
        with self._changed:
            self._running.pop(threading.current_thread().name)
            for submission, _, size, _ in portions:
                submission.unfinished -= size
                if failure is not None:
                    submission.error = failure
                    self._order.remove(submission)
                    self._count()
                if failure is not None or not submission.unfinished:
                    complete.append(submission)
        return complete

    def delivered(self, portions: Sequence[Portion[Submission]], started: float, finished: Sequence[Any]) -> None:
        """Records that the callers of a batch have their results, and keeps `finished` for the follow-up."""
        cost, items = sum(portion.cost for portion in portions), sum(portion.size for portion in portions)
        with self._changed:
            if not self._finished:
                self._oldest = started
            self._finished += finished
            self._finished_items += items if finished else 0
            self._active = time.perf_counter()
            alone = len(portions) == 1 and portions[0].entry.small
            self._pace.observe(cost, self._active - started, share=cost / self._max_batch, alone=alone)

    def ended(self, *, lone: bool = False) -> None:
        """Records that this thread's batch is over. `lone`: the thread is the event loop's."""
        self._tally.add(RUNNING, -1)
        if lone:
            return
        with self._changed:
            self._busy -= 1
            if self._closing:
                self._changed.notify_all()

    def wake_when_due(self) -> float | None:
        """Wakes a thread if finished batches are due for their follow-up. Otherwise, the seconds until they are; None
        if there are none."""
        with self._changed:
            if not self._finished:
                return None
            seconds = self._due_at() - time.perf_counter()
            if seconds > 0:
                return seconds
            self._changed.notify()
            return None

    def due(self, *, quiet: bool) -> list[Any]:
        """All finished batches, if their follow-up is due; otherwise empty. Wakes other threads for new items."""
        with self._changed:
            late = time.perf_counter() - self._oldest > _OLDEST_SECONDS
            if not self._finished or not (quiet or late or self._finished_items >= self._max_batch):
                return []
            due, self._finished, self._finished_items = self._finished, [], 0
            self._wake_threads()
            return due

    @property
    def followed_up(self) -> bool:
        """Whether every batch that has its results was followed up."""
        with self._changed:
            return not self._finished and self._idle + len(self._running) >= self._threads

    def idle(self) -> None:
        """Records that this thread is idle."""
        with self._changed:
            self._idle += 1

    def close(self) -> None:
        """Accepts no more submissions."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    @property
    def closing(self) -> bool:
        """Whether no more submissions are accepted."""
        return self._closing

    def hanging(self) -> float | None:
        """Seconds since the oldest hanging batch began; None if no batch hangs."""
        now = time.perf_counter()
        with self._changed:
            since = [began for began, cost in self._running.values() if self._pace.hangs(cost, now - began)]
        return now - min(since) if since else None

    def _due_at(self) -> float:
        """When finished batches are due for their follow-up: later while batches run, which it would slow down."""
        latest = self._oldest + _OLDEST_SECONDS
        return latest if self._idle < self._threads else min(latest, self._active + _QUIET_SECONDS)

    def _free_threads(self) -> int:
        """Number of idle threads that may take items now."""
        free = self._for_small - self._busy
        if self._order.large_waits or self._order.cost > self._max_batch:  # use cores that other processes leave idle
            free = max(free, self._threads - int(self._tally.total(RUNNING)))
        return max(0, min(self._idle, free))

    def _wake_threads(self) -> None:
        self._changed.notify(min(self._order.items, self._free_threads()))

    def _count(self) -> None:
        """Tells the other processes how many items wait here."""
        self._tally.add(WAITING, self._order.items - self._counted)
        self._counted = self._order.items


class Queue:
    """A bounded queue, and the threads that run its items.

    Parameters
    ----------
    name : the model's, for messages and thread names
    run_batch : called with items and each item's seconds in the queue, on several threads at once. Returns a result for
        each item and a value for `follow_up`, or raises an error that concerns all items
    follow_up : called after delivery, on one of the threads, with the values of several batches, about `max_batch`
        items together
    threads : batches that run at once
    max_batch : largest cost of a batch; an item costs 1 unless `submit` says otherwise
    max_waiting : most items waiting, over all processes. Small submissions may use 1/8 more. Beyond it: Overloaded,
        unless this queue is empty
    max_seconds : a submission that would probably take longer raises Overloaded; None for no limit
    tally : counters shared by the service's processes; by default, those of one process
    """

    def __init__(
        self,
        name: str,
        run_batch: Callable[[Sequence[Any], Sequence[float]], tuple[Sequence[Any], Any]],
        follow_up: Callable[[Sequence[Any]], None] = lambda finished: None,
        *,
        threads: int,
        max_batch: int,
        max_waiting: int,
        max_seconds: float | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.name = name
        self._run_batch = run_batch
        self._follow_up = follow_up
        self._waking = False  # whether a timer of the event loop will wake a thread
        self._backlog = Backlog(
            name,
            threads=threads,
            max_batch=max_batch,
            max_waiting=max_waiting,
            max_seconds=max_seconds,
            tally=tally or Tally(),
        )
        self._threads = [
            threading.Thread(target=self._thread_main, name=f"network-{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Items waiting for a batch."""
        return self._backlog.items

    @property
    def followed_up(self) -> bool:
        """Whether every batch that has its results was followed up."""
        return self._backlog.followed_up

    @property
    def fault(self) -> str | None:
        """Why items do not run now; None if they run."""
        if self._backlog.closing or not all(thread.is_alive() for thread in self._threads):
            return f"a thread of model {self.name!r} has stopped"
        seconds = self._backlog.hanging()
        return None if seconds is None else f"the network of model {self.name!r} has been running for {seconds:.0f} s"

    async def submit(self, items: Sequence[Any], client: str = "", costs: Sequence[float] | None = None) -> Submission:
        """The submission, with a result for each item. `costs` has each item's cost, 1 or more; by default 1.

        Raises Overloaded, ShuttingDown or an error of the whole batch (a ModelError). If the caller is cancelled (its
        client disconnected), items not yet in a batch are dropped.
        """
        loop = asyncio.get_running_loop()
        summed = range(len(items) + 1) if costs is None else [0, *accumulate(costs)]
        submission = Submission(client, summed, items=items, future=loop.create_future(), submitted=time.perf_counter())
        if not items:
            return submission
        if self._backlog.add(submission):
            # Let the loop handle its ready events first: if they bring more submissions, a thread takes all together.
            loop.call_soon(self._run_lone, submission, context=Context())
        try:
            await submission.future
        finally:
            self._backlog.drop(submission)
        if submission.error is not None:
            raise submission.error
        return submission

    def close(self) -> None:
        """Runs the waiting items and ends the threads, except a thread whose network hangs. Accepts no more items."""
        self._backlog.close()
        until = time.monotonic() + _CLOSES
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            log.error("a run of model %s does not return; the service stops without it", self.name)

    def _run_lone(self, submission: Submission) -> None:
        """Runs a submission on the event loop if it is still alone: a change of threads would cost more."""
        portions = self._backlog.take_lone(submission)
        if portions:
            self._run(portions)
            self._backlog.ended(lone=True)
            # No thread is woken now: it would contend with the event loop, which writes the reply next.
            if not self._waking:
                self._waking = True
                asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._wake_when_due, context=Context())

    def _wake_when_due(self) -> None:
        """Wakes a thread for the follow-up of lone submissions, when it is due."""
        seconds = self._backlog.wake_when_due()
        if seconds is None:
            self._waking = False
        else:
            asyncio.get_running_loop().call_later(seconds, self._wake_when_due)

    def _thread_main(self) -> None:
        """Takes, runs and follows up batches until the queue is closed."""
        while True:
            portions = self._backlog.next_batch()
            if portions:
                self._run(portions)
                self._backlog.ended()
            finished = self._backlog.due(quiet=not portions)
            if finished:
                try:
                    self._follow_up(finished)
                except Exception:  # a bug; the answers have been sent, and the thread goes on
                    log.exception("work after the answers of model %s failed", self.name)
            elif not portions and self._backlog.closing:
                return
            self._backlog.idle()

    def _run(self, portions: Sequence[Portion[Submission]]) -> None:
        """Runs a batch and hands out its results."""
        items = [item for submission, first, size, _ in portions for item in submission.items[first : first + size]]
        waited = [submission.started - submission.submitted for submission, _, size, _ in portions for _ in range(size)]
        started, finished = time.perf_counter(), []
        try:
            results, for_follow_up = self._run_batch(items, waited)
        except Exception as error:  # a failing batch must not end the thread
            complete = self._backlog.returned(portions, error)
        else:
            finished.append(for_follow_up)
            rest = iter(results)
            for submission, first, size, _ in portions:
                submission.results[first : first + size] = islice(rest, size)
            complete = self._backlog.returned(portions)
        _wake_callers(complete)
        self._backlog.delivered(portions, started, finished)


def _wake_callers(complete: Sequence[Submission]) -> None:
    """Ends the wait of the callers of these submissions. Each event loop is woken once."""
    futures: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = defaultdict(list)
    for submission in complete:
        submission.ended = time.perf_counter()
        futures[submission.future.get_loop()].append(submission.future)
    for loop, of_loop in futures.items():
        if loop is _running_loop():
            _resolve(of_loop)
            continue
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_resolve, of_loop)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _resolve(futures: Sequence[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():  # the caller has gone, or another batch of the submission has failed
            future.set_result(None)
