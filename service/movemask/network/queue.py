"""`Queue`: the queue in front of a network, and the threads that turn waiting items into batches.

There are as many threads as the session has runs at once. A free thread takes its share of the queue and does
everything from the query to the caller's result, so that one thread's Python overlaps with another's network run.
Nothing is polled, and no batch waits to fill up: a lone item is taken at once. `lanes` says whose turn it is.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from movemask.errors import MovemaskError, Overloaded, ShuttingDown
from movemask.network.lanes import SHORT, Lanes

log = logging.getLogger(__name__)

Q = TypeVar("Q")
Q_contra = TypeVar("Q_contra", contravariant=True)
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
D = TypeVar("D")
D_co = TypeVar("D_co", covariant=True)

#: A thread follows up what it has answered when nothing has arrived for so long …
_QUIET = 0.005  # seconds
#: … or the oldest of it is so old.
_OLDEST = 0.1  # seconds


class Worker(Protocol[Q_contra, A_co, D_co]):
    """The function that the queue's threads call, several at a time."""

    def __call__(
        self, items: Sequence[Q_contra], waited: Sequence[float], /
    ) -> tuple[Sequence[A_co | MovemaskError], D_co]:
        """An answer or an error for each item, and what the follow-up needs. Raises an error that concerns all.

        `waited` is each item's time in the queue, in seconds.
        """
        ...


@dataclass(frozen=True, slots=True)
class Delivery(Generic[R_co]):
    """The results of one submission, in order; and when it was submitted, its first batch began and its last ended, by
    `time.perf_counter`."""

    results: Sequence[R_co | MovemaskError]
    submitted: float
    started: float
    ended: float


@dataclass(slots=True, eq=False)
class _Submission(Generic[Q, A, R]):
    """Items submitted together: `taken` of them are in batches, `left` are unanswered."""

    items: Sequence[Q]
    write: Callable[[A], R]
    future: asyncio.Future[Delivery[R]]
    loop: asyncio.AbstractEventLoop
    submitted: float
    left: int
    client: str
    taken: int = 0
    waited: float = 0.0
    results: dict[int, list[R | MovemaskError]] = field(default_factory=dict)  # by the first item of each part

    def delivery(self) -> Delivery[R]:
        """All results in order."""
        results = [result for _, part in sorted(self.results.items()) for result in part]
        return Delivery(results, self.submitted, self.submitted + self.waited, time.perf_counter())


_Part = tuple[_Submission[Any, Any, Any], int, Sequence[Any]]  # submission, first item, items


class Queue(Generic[Q, A, D]):
    """A bounded queue and the threads that answer its items.

    Parameters
    ----------
    name : of the model, for messages and threads
    follow_up : called with what the worker returned for some batches that have been delivered, on the thread that
        answered them: for up to `max_batch` items at once, as soon as there is time
    threads : batches in work at once
    max_batch : items in one batch
    max_waiting : items that may wait, and an eighth more for short submissions; a submission beyond it raises
        Overloaded, unless nothing waits
    max_seconds : a submission that would probably wait for longer raises Overloaded too; None for no limit
    """

    def __init__(
        self,
        name: str,
        worker: Worker[Q, A, D],
        follow_up: Callable[[Sequence[D]], None] = lambda done: None,
        *,
        threads: int,
        max_batch: int,
        max_waiting: int,
        max_seconds: float | None = None,
    ) -> None:
        self.name = name
        self._max_seconds = max_seconds
        self._worker = worker
        self._follow_up = follow_up
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._wake = threading.Condition()
        self._lanes: Lanes[_Submission[Q, A, Any]] = Lanes()
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
        """Items waiting for a batch."""
        return self._lanes.items

    @property
    def alive(self) -> bool:
        """Whether all threads accept work."""
        return all(thread.is_alive() for thread in self._threads) and not self._closing

    async def submit(self, items: Sequence[Q], write: Callable[[A], R], client: str = "") -> Delivery[R]:
        """`write(answer)` for each item, or its error, in order; `write` runs on the thread that answered.

        Raises Overloaded, ShuttingDown or an error of the whole batch (a ModelError). If the caller is cancelled (its
        client disconnected), items that are not in a batch yet are dropped.
        """
        if not items:
            raise ValueError("items: nothing to answer")
        loop = asyncio.get_running_loop()
        entry = _Submission(items, write, loop.create_future(), loop, time.perf_counter(), len(items), client)
        with self._wake:
            if self._closing:
                raise ShuttingDown("the service is stopping", retry_after=5)
            self._admit(len(items))
            self._lanes.add(entry)
            self._wake.notify(min(len(items), self._idle))
        try:
            return await entry.future
        finally:
            if entry.taken < len(items):
                self._drop(entry)

    def _admit(self, size: int) -> None:
        """Raises Overloaded if a submission of that size would make too many wait, or wait for too long."""
        waiting, at_a_time = self._lanes.items, self._seconds_per_item / len(self._threads)
        if not waiting:
            return
        seconds = (self._lanes.before(size) + size) * at_a_time
        room = self._max_waiting + (self._max_waiting // 8 if size <= SHORT else 0)
        if waiting + size > room:
            limit = f"the queue takes {room}"
        elif self._max_seconds is not None and seconds > self._max_seconds:
            limit = f"{size} more would be answered in {seconds:.1f} s, later than {self._max_seconds:g} s"
        else:
            return
        raise Overloaded(
            f"{waiting} positions wait for model {self.name} already; {limit}",
            retry_after=max(1, round(waiting * at_a_time)),
        )

    def close(self) -> None:
        """Answers the waiting items, accepts no more, and ends the threads."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        done: list[D] = []  # batches to follow up
        size, since = 0, 0.0  # items in them, and when the first was delivered
        while True:
            parts = self._next_batch(None if not done else _QUIET)
            if parts:
                items = [item for _, _, part in parts for item in part]
                waited = [entry.waited for entry, _, part in parts for _ in part]
                started = time.perf_counter()
                try:
                    answers, one = self._worker(items, waited)
                except Exception as error:  # a failing batch must not end the thread
                    self._fail(parts, error)
                else:
                    self._deliver(parts, answers)
                    since = since if done else started
                    done.append(one)
                    size += len(items)
                self._measured((time.perf_counter() - started) / len(items), len(items))
            elif not done:
                return
            if done and (not parts or size >= self._max_batch or time.perf_counter() - since > _OLDEST):
                try:
                    self._follow_up(done)
                except Exception:  # a bug; the answers are out, and the thread goes on
                    log.exception("what follows the answers of model %s failed", self.name)
                done, size = [], 0
            with self._wake:
                self._idle += 1

    def _measured(self, seconds_per_item: float, size: int) -> None:
        """Follows the time of an item; a small batch, whose items take longer, counts for less."""
        weight = 1.0 if not self._seconds_per_item else min(0.5, size / self._max_batch)
        self._seconds_per_item += weight * (seconds_per_item - self._seconds_per_item)

    def _next_batch(self, patience: float | None) -> list[_Part]:
        """Waits for items and takes a share. No parts if there are none within `patience` seconds,
        or the queue is closed and empty. The thread counts as busy from then on.
        """
        with self._wake:
            self._wake.wait_for(lambda: self._lanes.items or self._closing, patience)
            room = min(self._max_batch, -(-self._lanes.items // self._idle))  # split evenly among idle threads
            self._idle -= 1
            now = time.perf_counter()
            parts: list[_Part] = []
            for entry, first, size in self._lanes.take(room):
                if first == 0:
                    entry.waited = now - entry.submitted
                parts.append((entry, first, entry.items[first : first + size]))
            return parts

    def _deliver(self, parts: Sequence[_Part], answers: Sequence[Any]) -> None:
        """Writes the results of each part, and wakes each event loop once for all complete submissions."""
        done: list[tuple[_Submission[Any, Any, Any], Delivery[Any] | Exception]] = []
        start = 0
        for entry, first, part in parts:
            end = start + len(part)
            try:
                results = [
                    answer if isinstance(answer, MovemaskError) else entry.write(answer)
                    for answer in answers[start:end]
                ]
            except Exception as error:
                self._drop(entry)
                done.append((entry, error))
            else:
                with self._wake:
                    entry.results[first] = results
                    entry.left -= len(part)
                    complete = not entry.left
                if complete:
                    done.append((entry, entry.delivery()))
            start = end
        _settle(done)

    def _drop(self, entry: _Submission[Any, Any, Any]) -> None:
        """Removes the rest of a submission from the queue: its caller has gone, or it has failed."""
        with self._wake:
            self._lanes.remove(entry)

    def _fail(self, parts: Sequence[_Part], error: Exception) -> None:
        for entry, _, _ in parts:
            self._drop(entry)
        _settle([(entry, error) for entry, _, _ in parts])


def _settle(results: Sequence[tuple[_Submission[Any, Any, Any], Delivery[Any] | Exception]]) -> None:
    """Hands results to the callers' event loops; skips callers and loops that have gone."""
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
