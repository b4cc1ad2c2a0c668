"""`Queue`: the queue in front of a network, and the threads that turn waiting items into batches.

There are as many threads as the session has runs at once. A free thread takes its share of the queue and does
everything from the query to the caller's result, so that one thread's Python overlaps with another's network run.
Nothing is polled, and no batch waits to fill up. A small submission that comes alone is answered on the event loop.

`FairQueue` says whose turn it is. Small submissions go first; if large ones wait, a slice of each batch is kept for
them. Within both, clients take turns. A large submission gets more than a slice only if no small one came in the last
second and no other client waits: nobody waits for a whole batch of someone else's.

Items and results pass through unread: they are the pipeline's queries and what is written of its answers.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from bisect import bisect_right
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from itertools import accumulate, islice
from math import inf
from typing import Any

from movemask.errors import Overloaded, ShuttingDown
from movemask.serving.tally import RUNNING, WAITING, Tally

log = logging.getLogger(__name__)

#: Work of a small submission, at most; that of an item is 1 or more.
SMALL = 8

#: Most work that one client gets per turn, and that large submissions get in a batch while small ones are expected: a
#: small one waits for two such slices. With a slow network a slice is what takes _SLICE_SECONDS.
SLICE = 8
_SLICE_SECONDS = 0.006

#: Large submissions are left a slice of a batch however many small ones wait, but of a small batch one in so many.
_LARGE_SHARE = 4

#: Seconds that small submissions are expected for after one has come.
_SMALL_EXPECTED = 1.0

#: A batch that takes this many seconds, and ten times what its items usually take, does not come back.
_HANGS = 4.0

#: Seconds that the threads get to end when the queue is closed.
_CLOSES = 2.0

#: Seconds that the event loop may be held by answering a submission that came alone.
_AT_ONCE = 0.004

#: What has been answered is followed up when nothing has arrived or run for so long …
_QUIET = 0.005  # seconds
#: … or the oldest of it is so old.
_OLDEST = 0.1  # seconds


@dataclass(slots=True, eq=False)
class Submission:
    """Items submitted together: `taken` of them are in batches, `left` are unanswered. `results` are in their order,
    unless an `error` concerns them all. `work` is what they cost, summed up: that of item i is work[i + 1] - work[i].

    `submitted`, `started` and `ended` say, by `time.perf_counter`, when it came, its first batch began and its last
    ended.
    """

    items: Sequence[Any]
    client: str
    future: asyncio.Future[None]
    submitted: float
    work: Sequence[float]
    started: float = 0.0
    ended: float = 0.0
    taken: int = 0
    error: Exception | None = None
    left: int = field(init=False)
    results: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.left, self.results = len(self.items), [None] * len(self.items)

    @property
    def small(self) -> bool:
        """Whether it goes before large ones."""
        return self.work[-1] <= SMALL

    @property
    def remaining(self) -> float:
        """The work of the items that are in no batch yet."""
        return self.work[-1] - self.work[self.taken]


#: A submission, its first item in a batch, and how many.
Part = tuple[Submission, int, int]


class _Turns:
    """Submissions by client; clients take turns, of the same work, and each client's own come in order."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, deque[Submission]] = OrderedDict()
        self.items, self.work = 0, 0.0

    def __len__(self) -> int:
        return len(self._clients)

    def add(self, entry: Submission) -> None:
        self._clients.setdefault(entry.client, deque()).append(entry)
        self.items += len(entry.items) - entry.taken
        self.work += entry.remaining

    def take(self, room: float) -> list[Part]:
        """Up to `room` of work, and one item however much it is: each submission, its first item taken now, and how
        many."""
        parts: list[Part] = []
        while room >= 1 and self._clients:
            client, entries = next(iter(self._clients.items()))
            turn = room if len(self._clients) == 1 else min(room, SLICE)
            while entries and turn >= 1:
                entry = entries[0]
                before = entry.work[entry.taken]
                size = max(1, bisect_right(entry.work, before + turn, entry.taken) - 1 - entry.taken)
                parts.append((entry, entry.taken, size))
                entry.taken += size
                done = entry.work[entry.taken] - before
                turn, room = turn - done, room - done
                self.items -= size
                self.work -= done
                if entry.taken == len(entry.items):
                    entries.popleft()
            self._clients.move_to_end(client)
            if not entries:
                del self._clients[client]
        return parts

    def remove(self, entry: Submission) -> None:
        entries = self._clients.get(entry.client, deque())
        if entry in entries:
            entries.remove(entry)
            self.items -= len(entry.items) - entry.taken
            self.work -= entry.remaining
            if not entries:
                del self._clients[entry.client]


class FairQueue:
    """The submissions that wait. Not safe for threads: its queue holds a lock."""

    def __init__(self) -> None:
        self._small, self._large = _Turns(), _Turns()
        self._small_came = -_SMALL_EXPECTED
        self.slice = float(SLICE)  # of large submissions

    @property
    def items(self) -> int:
        """Items that wait."""
        return self._small.items + self._large.items

    @property
    def small(self) -> int:
        """Items of small submissions that wait."""
        return self._small.items

    @property
    def large(self) -> bool:
        """Whether a large submission is among them."""
        return self._large.items > 0

    @property
    def work(self) -> float:
        """The work of all that waits."""
        return self._small.work + self._large.work

    def before(self, entry: Submission) -> float:
        """The work that is done before the last item of a submission that came now."""
        return self._small.work + (self.slice if entry.small else self._large.work)

    def add(self, entry: Submission) -> None:
        """Adds a submission of which nothing has been taken."""
        if entry.small:
            self._small.add(entry)
            self._small_came = time.monotonic()
        else:
            self._large.add(entry)

    def take(self, room: float) -> list[Part]:
        """Up to `room` of work for one batch: each submission, its first item taken now, and how many."""
        left = min(self.slice, room // _LARGE_SHARE) if self._large.items else 0
        parts = self._small.take(room - left)
        room -= sum(entry.work[first + size] - entry.work[first] for entry, first, size in parts)
        if parts or len(self._large) > 1 or time.monotonic() - self._small_came < _SMALL_EXPECTED:
            room = min(room, self.slice)
        return parts + self._large.take(room)

    def remove(self, entry: Submission) -> None:
        """Takes out what is left of a submission: its caller has gone, or it has failed."""
        (self._small if entry.small else self._large).remove(entry)


class Queue:
    """A bounded queue and the threads that answer its items.

    Parameters
    ----------
    name : of the model, for messages and threads
    worker : called with items and the seconds until the first batch of each one's submission, on several threads at
        once; returns a result for each item, and what the follow-up needs, or raises an error that concerns all
    follow_up : called with what the worker returned for some batches that have been delivered, on one of the threads:
        for about `max_batch` items at once, as soon as there is time
    threads : batches in work at once
    max_batch : work in one batch; an item without work of its own is 1
    max_waiting : items that may wait in all processes together, and an eighth more for small submissions; a submission
        beyond it raises Overloaded, unless nothing waits here, or it is small and so is what little waits here
    tally : where the processes add up what waits; None for a process that is alone
    max_seconds : a submission that would probably wait for longer raises Overloaded too; None for no limit
    """

    def __init__(
        self,
        name: str,
        worker: Callable[[Sequence[Any], Sequence[float]], tuple[Sequence[Any], Any]],
        follow_up: Callable[[Sequence[Any]], None] = lambda done: None,
        *,
        threads: int,
        max_batch: int,
        max_waiting: int,
        max_seconds: float | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.name = name
        self._max_seconds = max_seconds
        self._worker = worker
        self._follow_up = follow_up
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._tally = tally or Tally()
        self._counted = 0  # of the tally's positions that wait
        self._wake = threading.Condition()
        self._fair = FairQueue()
        self._closing = False
        self._seconds_per_work = 0.0
        self._seconds_alone = inf  # for a unit of work of the last submission that was answered alone
        self._running: dict[str, tuple[float, float]] = {}  # by thread: since when, and how much work
        self._active = 0.0  # when something arrived or ended last
        self._done: list[Any] = []  # batches to follow up
        self._done_items, self._oldest = 0, 0.0  # items in them, and when work on the first began
        self._idle, self._busy = threads, 0  # threads without work, and those that answer a batch
        # A core for each process: small requests that keep two of its threads busy make them wait for Python's lock.
        self._few = max(1, threads // self._tally.processes)
        self._threads = [
            threading.Thread(target=self._work, name=f"network-{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Items waiting for a batch."""
        return self._fair.items

    @property
    def fault(self) -> str | None:
        """Why its items are not answered now; None if they are."""
        if self._closing or not all(thread.is_alive() for thread in self._threads):
            return f"a thread of model {self.name!r} has stopped"
        now = time.perf_counter()
        for since, work in list(self._running.values()):
            if now - since > max(_HANGS, 10 * work * self._seconds_per_work):
                return f"the network of model {self.name!r} has been running for {now - since:.0f} s"
        return None

    async def submit(self, items: Sequence[Any], client: str = "", work: Sequence[float] | None = None) -> Submission:
        """The submission with the result of each item. `work` says what each costs beside the others, 1 if left out.

        Raises Overloaded, ShuttingDown or an error of the whole batch (a ModelError). If the caller is cancelled (its
        client disconnected), items that are not in a batch yet are dropped.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        summed = range(len(items) + 1) if work is None else [0, *accumulate(work)]
        entry = Submission(items, client, future, time.perf_counter(), summed)
        if not items:
            return entry
        with self._wake:
            if self._closing:
                raise ShuttingDown("the service is stopping", retry_after=5)
            self._admit(entry)
            lone = not self._fair.items and self._idle == len(self._threads)
            self._fair.add(entry)
            self._count()
            self._active = entry.submitted
            if lone and entry.small and entry.work[-1] * self._seconds_alone < _AT_ONCE:
                # What else has come by now is seen first: several are answered together, by a thread.
                asyncio.get_running_loop().call_soon(self._answer_lone, entry, context=Context())
            else:
                self._call_threads()
        try:
            await future
        finally:
            if entry.taken < len(items):
                with self._wake:
                    self._fair.remove(entry)
                    self._count()
        if entry.error is not None:
            raise entry.error
        return entry

    def _count(self) -> None:
        """Tells the service's other processes how many items wait. The caller has the lock."""
        self._tally.add(WAITING, self._fair.items - self._counted)
        self._counted = self._fair.items

    def _answer_lone(self, entry: Submission) -> None:
        """Answers a submission on the event loop if it still waits alone: changing threads would cost more."""
        with self._wake:
            if entry.taken or self._fair.items != len(entry.items) or self._idle < len(self._threads):
                self._call_threads()
                return
            parts = self._taken(len(entry.work))
        if parts:
            self._run(parts)
            with self._wake:
                self._wake.notify()  # a thread follows it up

    def _able(self) -> int:
        """How many idle threads may take what waits now. The caller has the lock."""
        able = self._few - self._busy
        if self._fair.large or self._fair.work > self._max_batch:  # the cores that other processes leave, too
            able = max(able, len(self._threads) - int(self._tally.total(RUNNING)))
        return max(0, min(self._idle, able))

    def _call_threads(self) -> None:
        """Wakes threads for what waits. The caller has the lock."""
        self._wake.notify(min(self._fair.items, self._able()))

    def _admit(self, entry: Submission) -> None:
        """Raises Overloaded if a submission would make too many wait, or wait for too long."""
        size = len(entry.items)
        waiting, at_a_time = self._fair.items, self._seconds_per_work / len(self._threads)
        if not waiting:
            return
        seconds = (self._fair.before(entry) + entry.work[-1]) * at_a_time
        spare = self._max_waiting // 8 if entry.small else 0
        room = self._max_waiting + spare
        # Of what other processes have waiting, small ones here do not suffer: they keep this one's part of the eighth.
        kept = entry.small and self._fair.small + size <= spare // self._tally.processes
        if self._tally.total(WAITING) + size > room and not kept:
            limit = f"the queue has room for {room}"
        elif self._max_seconds is not None and seconds > self._max_seconds:
            limit = f"{size} more would be answered in {seconds:.1f} s, later than {self._max_seconds:g} s"
        else:
            return
        raise Overloaded(
            f"{waiting} positions are already waiting for model {self.name}; {limit}",
            retry_after=max(1, round(self._fair.work * at_a_time)),
        )

    def close(self) -> None:
        """Answers the waiting items, accepts no more, and ends the threads; one whose network hangs is left behind."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        until = time.monotonic() + _CLOSES
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            log.error("a run of model %s does not return; the service stops without it", self.name)

    def _work(self) -> None:
        while True:
            parts = self._next_batch()
            if parts:
                self._run(parts)
                with self._wake:
                    self._busy -= 1
                    self._tally.add(RUNNING, -1)
                    if self._closing:
                        self._wake.notify_all()
            done = self._due(quiet=not parts)
            if done:
                with self._wake:
                    self._call_threads()  # others answer meanwhile
                try:
                    self._follow_up(done)
                except Exception:  # a bug; the answers are out, and the thread goes on
                    log.exception("work after the answers of model %s failed", self.name)
            elif not parts and self._closing:
                return
            with self._wake:
                self._idle += 1

    def _run(self, parts: Sequence[Part]) -> None:
        """Answers and delivers a batch, and leaves it to be followed up."""
        items = [item for entry, first, size in parts for item in entry.items[first : first + size]]
        waited = [entry.started - entry.submitted for entry, _, size in parts for _ in range(size)]
        thread, started = threading.current_thread().name, time.perf_counter()
        work = sum(entry.work[first + size] - entry.work[first] for entry, first, size in parts)
        self._running[thread] = started, work
        try:
            results, done = self._worker(items, waited)
        except Exception as error:  # a failing batch must not end the thread
            del self._running[thread]
            self._deliver(parts, [], error)
        else:
            del self._running[thread]  # before the answers: a probe right after them must not find that it hangs
            self._deliver(parts, results)
            with self._wake:
                self._oldest = self._oldest if self._done else started
                self._done.append(done)
                self._done_items += len(items)
        self._active = time.perf_counter()
        # A small batch, whose items take longer, counts for less.
        weight, seconds = min(0.5, work / self._max_batch), (self._active - started) / work
        self._seconds_per_work += (weight if self._seconds_per_work else 1.0) * (seconds - self._seconds_per_work)
        self._fair.slice = max(1.0, min(SLICE, _SLICE_SECONDS / self._seconds_per_work))
        if len(parts) == 1 and parts[0][0].small:
            self._seconds_alone = seconds

    def _due(self, quiet: bool) -> list[Any]:
        """What is to be followed up now, for this thread to do: what all threads have answered, or nothing yet."""
        with self._wake:
            late = time.perf_counter() - self._oldest > _OLDEST
            if not (quiet or late or self._done_items >= self._max_batch):
                return []
            done, self._done, self._done_items = self._done, [], 0
            return done

    def _next_batch(self) -> list[Part]:
        """Waits for items and takes a share. No parts if it is time to follow up what has been answered, or the queue
        is closed and empty. The thread counts as busy from then on.
        """
        with self._wake:
            while not (self._fair.items and self._able()) and not (self._closing and not self._fair.items):
                left = None
                if self._done:  # it would slow down a batch that is running
                    busy = self._idle < len(self._threads)
                    due = self._oldest + _OLDEST if busy else self._active + _QUIET
                    left = due - time.perf_counter()
                    if left <= 0:
                        break
                self._wake.wait(left)
            able = max(1, self._able())
            room = min(
                self._max_batch, -(-self._fair.work // able)
            )  # an even split among the threads that may take some
            self._idle -= 1
            parts = self._taken(room)
            self._busy += bool(parts)
            self._tally.add(RUNNING, bool(parts))
            return parts

    def _taken(self, room: float) -> list[Part]:
        """Up to `room` of work for a batch that begins now. The caller has the lock."""
        now = time.perf_counter()
        parts = self._fair.take(room)
        self._count()
        for entry, first, _ in parts:
            if first == 0:
                entry.started = now
        return parts

    def _deliver(self, parts: Sequence[Part], results: Sequence[Any], failure: Exception | None = None) -> None:
        """Hands out the results of each part unless all failed, and wakes each event loop once for all that is over."""
        over: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = defaultdict(list)
        rest = iter(results)
        for entry, first, size in parts:
            entry.results[first : first + size] = islice(rest, size) if failure is None else [failure] * size
            with self._wake:
                entry.left -= size
                if failure is not None:
                    entry.error = failure
                    self._fair.remove(entry)
                    self._count()
                elif entry.left:
                    continue
            entry.ended = time.perf_counter()
            over[entry.future.get_loop()].append(entry.future)
        for loop, futures in over.items():
            if _running_loop() is loop:
                _resolve(futures)
                continue
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_resolve, futures)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _resolve(futures: Sequence[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():  # its caller has gone, or another batch has failed
            future.set_result(None)
