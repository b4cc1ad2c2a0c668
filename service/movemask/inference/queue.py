"""The one queue in front of a network: whatever waits when a thread is free becomes its next batch.

A few threads, as many as the session runs at once, sleep while nothing waits. Each takes its share of the queue and
does everything from the query to what the caller gets, so that one thread's Python runs while another's network does.
There is no polling and no waiting for company: a lone item is taken at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from movemask.errors import MovemaskError, Overloaded, ShuttingDown

log = logging.getLogger(__name__)

Q = TypeVar("Q")
Q_contra = TypeVar("Q_contra", contravariant=True)
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

#: What is still to be done once the callers have been told.
After = Callable[[], None]


class Worker(Protocol[Q_contra, A_co]):
    """What the queue's threads call; several at a time."""

    def __call__(
        self, items: Sequence[Q_contra], waited: Sequence[float], /, *, alone: bool
    ) -> tuple[Sequence[A_co | MovemaskError], After]:
        """An answer or an error for each item, which waited so many seconds in the queue; and what is left to do after
        the answers are out. `alone` if no other thread has work. Raises what concerns all items."""
        ...


@dataclass(frozen=True, slots=True)
class Delivery(Generic[R_co]):
    """The results of one submission in order, and when it was submitted, its first batch began and its last ended, in
    seconds of `time.perf_counter`."""

    results: Sequence[R_co | MovemaskError]
    submitted: float
    started: float
    ended: float


@dataclass(slots=True, eq=False)
class _Submission(Generic[Q, A, R]):
    """Items that came together: `taken` of them are in batches, `left` are not answered."""

    items: Sequence[Q]
    write: Callable[[A], R]
    future: asyncio.Future[Delivery[R]]
    loop: asyncio.AbstractEventLoop
    submitted: float
    left: int
    taken: int = 0
    waited: float = 0.0
    results: dict[int, list[R | MovemaskError]] = field(default_factory=dict)  # by the first item of each part

    def delivery(self) -> Delivery[R]:
        """All results in order."""
        results = [result for _, part in sorted(self.results.items()) for result in part]
        return Delivery(results, self.submitted, self.submitted + self.waited, time.perf_counter())


_Part = tuple[_Submission[Any, Any, Any], int, Sequence[Any]]  # submission, first item, items


class Queue(Generic[Q, A]):
    """A bounded queue and the threads that answer what waits in it.

    Parameters
    ----------
    name : of the model, for messages and threads
    threads : how many batches are worked on side by side
    max_batch : items in one batch
    max_waiting : items that may wait; a submission that would pass it raises Overloaded, unless nothing waits
    """

    def __init__(self, name: str, worker: Worker[Q, A], *, threads: int, max_batch: int, max_waiting: int) -> None:
        self.name = name
        self._worker = worker
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._wake = threading.Condition()
        self._submissions: deque[_Submission[Q, A, Any]] = deque()
        self._waiting = 0
        self._closing = False
        self._seconds_per_item = 0.0
        self._idle = threads
        self._threads = [
            threading.Thread(target=self._work, name=f"network-{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Items that wait for a batch."""
        return self._waiting

    @property
    def alive(self) -> bool:
        """Whether all threads take work."""
        return all(thread.is_alive() for thread in self._threads) and not self._closing

    async def submit(self, items: Sequence[Q], write: Callable[[A], R]) -> Delivery[R]:
        """What `write` makes of each answer, on the thread that answered; or its error, in order.

        Raises Overloaded, ShuttingDown or what concerns the whole batch (a ModelError). If the caller is cancelled (its
        client has gone), what has not been taken yet is dropped.
        """
        if not items:
            raise ValueError("items: nothing to answer")
        loop = asyncio.get_running_loop()
        entry = _Submission(items, write, loop.create_future(), loop, time.perf_counter(), len(items))
        with self._wake:
            if self._closing:
                raise ShuttingDown("the service is stopping", retry_after=5)
            if self._waiting and self._waiting + len(items) > self._max_waiting:
                raise Overloaded(
                    f"{self._waiting} positions wait for model {self.name} already; the queue takes "
                    f"{self._max_waiting}",
                    retry_after=max(1, round(self._waiting * self._seconds_per_item)),
                )
            self._submissions.append(entry)
            self._waiting += len(items)
            self._wake.notify(min(len(items), self._idle))
        try:
            return await entry.future
        finally:
            if entry.taken < len(items):
                self._drop(entry)

    def close(self) -> None:
        """Answers what waits, takes no more, and ends the threads."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            parts, alone = self._next_batch()
            if not parts:
                return
            items = [item for _, _, own in parts for item in own]
            waited = [entry.waited for entry, _, own in parts for _ in own]
            started = time.perf_counter()
            after: After | None = None
            try:
                answers, after = self._worker(items, waited, alone=alone)
            except Exception as error:  # a batch that breaks must not take the thread with it
                self._fail(parts, error)
            else:
                self._deliver(parts, answers)
            self._seconds_per_item = (time.perf_counter() - started) / len(items)
            if after is not None:
                try:
                    after()
                except Exception:  # a bug; the answers are out, and the thread goes on
                    log.exception("what follows the answers of model %s failed", self.name)
            with self._wake:
                self._idle += 1

    def _next_batch(self) -> tuple[list[_Part], bool]:
        """Waits for items and takes a share of them, in order of arrival, and says whether it is one item and no other
        thread has work; nothing when closing and nothing waits."""
        with self._wake:
            while not self._waiting and not self._closing:
                self._wake.wait()
            room = min(self._max_batch, -(-self._waiting // self._idle))  # split evenly among idle threads
            parts: list[_Part] = []
            now = time.perf_counter()
            alone = self._waiting == 1 and self._idle == len(self._threads)
            if room:
                self._idle -= 1
            while self._submissions and room:
                entry = self._submissions[0]
                if entry.taken == 0:
                    entry.waited = now - entry.submitted
                own = entry.items[entry.taken : entry.taken + room]
                parts.append((entry, entry.taken, own))
                entry.taken += len(own)
                room -= len(own)
                self._waiting -= len(own)
                if entry.taken == len(entry.items):
                    self._submissions.popleft()
            return parts, alone

    def _deliver(self, parts: Sequence[_Part], answers: Sequence[Any]) -> None:
        """Writes each submission's results, and wakes each event loop once for all that are complete."""
        done: list[tuple[_Submission[Any, Any, Any], Delivery[Any] | Exception]] = []
        start = 0
        for entry, first, own in parts:
            end = start + len(own)
            try:
                written = [one if isinstance(one, MovemaskError) else entry.write(one) for one in answers[start:end]]
            except Exception as error:
                self._drop(entry)
                done.append((entry, error))
            else:
                with self._wake:
                    entry.results[first] = written
                    entry.left -= len(own)
                    complete = not entry.left
                if complete:
                    done.append((entry, entry.delivery()))
            start = end
        _settle(done)

    def _drop(self, entry: _Submission[Any, Any, Any]) -> None:
        """Takes what is left of a submission out of the queue: its caller has gone, or has failed."""
        with self._wake:
            if entry in self._submissions:
                self._submissions.remove(entry)
                self._waiting -= len(entry.items) - entry.taken

    def _fail(self, parts: Sequence[_Part], error: Exception) -> None:
        for entry, _, _ in parts:
            self._drop(entry)
        _settle([(entry, error) for entry, _, _ in parts])


def _settle(results: Sequence[tuple[_Submission[Any, Any, Any], Delivery[Any] | Exception]]) -> None:
    """Hands results to the callers' event loops; callers and loops that have gone are left alone."""
    for loop in {entry.loop for entry, _ in results}:
        own = [(entry.future, result) for entry, result in results if entry.loop is loop]
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_resolve, own)


def _resolve(results: Sequence[tuple[asyncio.Future[Any], Delivery[Any] | Exception]]) -> None:
    for future, result in results:
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
