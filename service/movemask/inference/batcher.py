"""The batcher: whatever waits is run as one batch, as soon as the network is free.

A few threads, as many as the session runs at once, sleep while nothing waits: there is no polling, and a lone position
is run at once, so there is no added delay. What arrives while all are busy waits and becomes the next batch. Runs side
by side, a thread each, do more than one run on all threads, which wait for each other in every operator.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from movemask.board.encoded import EncodedPosition
from movemask.errors import InferenceFailed, MovemaskError, Overloaded, ShuttingDown
from movemask.inference.model import Evaluation, Model

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Inferred:
    """What the network said of the positions of one submission, in order, and how long that took.

    `queue_seconds` from submission to the start of the first
    batch they were in, `inference_seconds` the times of the batches they were in, added up.
    """

    evaluation: Evaluation
    queue_seconds: float
    inference_seconds: float


@dataclass(frozen=True, slots=True)
class BatchRun:
    """One batch that was run, for whoever watches: its size, how long it took, and how many positions wait
    behind it."""

    model: str
    size: int
    seconds: float
    waiting: int
    queue_seconds: tuple[float, ...]  # of each submission that began with this batch


@dataclass(slots=True, eq=False)
class _Entry:
    """A submission on its way: `taken` positions are already in batches."""

    positions: Sequence[EncodedPosition]
    future: asyncio.Future[Inferred]
    loop: asyncio.AbstractEventLoop
    submitted: float
    taken: int = 0
    done: int = 0
    queue_seconds: float = 0.0
    inference_seconds: float = 0.0
    evaluated: list[tuple[int, Evaluation]] = field(default_factory=list)  # by the first position of each part


@dataclass(frozen=True, slots=True)
class _Part:
    """Positions of one entry, from `start` on, that are in a batch."""

    entry: _Entry
    start: int
    positions: Sequence[EncodedPosition]


@dataclass(frozen=True, slots=True)
class _Batch:
    """What one thread runs; `alone` if no other has work, nor will for now."""

    parts: Sequence[_Part]
    positions: Sequence[EncodedPosition]
    alone: bool


class Batcher:
    """A bounded queue in front of one model, and the threads that run it, `Session.at_once` of them.

    Parameters
    ----------
    max_batch : positions in one run of the network
    max_waiting : positions that may wait; a submission that would pass it raises Overloaded, unless nothing waits
    watch : called with each BatchRun, on the thread that ran it
    """

    def __init__(
        self, model: Model, *, max_batch: int, max_waiting: int, watch: Callable[[BatchRun], None] | None = None
    ) -> None:
        self.model = model
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._watch = watch
        self._wake = threading.Condition()
        self._entries: deque[_Entry] = deque()
        self._waiting = 0
        self._closing = False
        self._seconds_per_position = 0.0
        self._threads = [
            threading.Thread(target=self._work, name=f"network-{model.name}-{number}", daemon=True)
            for number in range(model.session.at_once)
        ]
        self._idle = len(self._threads)
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Positions that wait for a batch."""
        return self._waiting

    @property
    def alive(self) -> bool:
        """Whether the network's threads take work."""
        return all(thread.is_alive() for thread in self._threads) and not self._closing

    async def submit(self, positions: Sequence[EncodedPosition]) -> Inferred:
        """Runs the network on one position or more; raises Overloaded, ShuttingDown or a ModelError.

        If the caller is cancelled (its client has gone), what has not been run yet is dropped.
        """
        if not positions:
            raise ValueError("positions: nothing to run")
        loop = asyncio.get_running_loop()
        entry = _Entry(positions, loop.create_future(), loop, time.perf_counter())
        with self._wake:
            if self._closing:
                raise ShuttingDown("the service is stopping", retry_after=5)
            if self._waiting and self._waiting + len(positions) > self._max_waiting:
                raise Overloaded(
                    f"{self._waiting} positions wait for model {self.model.name} already; the queue takes "
                    f"{self._max_waiting}",
                    retry_after=max(1, round(self._waiting * self._seconds_per_position)),
                )
            self._entries.append(entry)
            self._waiting += len(positions)
            self._wake.notify(min(len(positions), self._idle))
        try:
            return await entry.future
        finally:
            self._drop(entry)

    def close(self) -> None:
        """Runs what waits, takes no more, and ends the threads."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            started = time.perf_counter()
            try:
                evaluation = self.model.evaluate(batch.positions, alone=batch.alone)
            except MovemaskError as error:
                self._fail(batch, error)
                continue
            except Exception as error:  # a batch that breaks must not take the thread with it
                self._fail(batch, InferenceFailed(f"model {self.model.name}: {type(error).__name__}: {error}"))
                continue
            finally:
                seconds = time.perf_counter() - started
                with self._wake:
                    self._idle += 1
            self._seconds_per_position = seconds / len(batch.positions)
            if self._watch is not None:
                queued = tuple(part.entry.queue_seconds for part in batch.parts if part.start == 0)
                self._watch(BatchRun(self.model.name, len(batch.positions), seconds, self._waiting, queued))
            start = 0
            whole = []
            for part in batch.parts:
                end = start + len(part.positions)
                if self._done(part, evaluation.part(slice(start, end)), seconds):
                    whole.append((part.entry, _inferred(part.entry)))
                start = end
            _tell(whole)

    def _next_batch(self) -> _Batch | None:
        """Waits for work and takes a fair share of it, at most `max_batch` positions in order of arrival; None when
        closing and nothing waits."""
        with self._wake:
            while not self._waiting and not self._closing:
                self._wake.wait()
            if not self._waiting:
                return None
            # As much as every thread gets that has nothing to do: two that are idle halve a batch.
            room = min(self._max_batch, -(-self._waiting // self._idle))
            alone = self._waiting == 1 and self._idle == len(self._threads)
            self._idle -= 1
            parts: list[_Part] = []
            while self._entries and room:
                entry = self._entries[0]
                if entry.taken == 0:
                    entry.queue_seconds = time.perf_counter() - entry.submitted
                part = _Part(entry, entry.taken, entry.positions[entry.taken : entry.taken + room])
                parts.append(part)
                entry.taken += len(part.positions)
                room -= len(part.positions)
                self._waiting -= len(part.positions)
                if entry.taken == len(entry.positions):
                    self._entries.popleft()
            return _Batch(parts, [position for part in parts for position in part.positions], alone)

    def _done(self, part: _Part, evaluation: Evaluation, seconds: float) -> bool:
        """Keeps what was made of a part; whether it was the last of its entry."""
        entry = part.entry
        with self._wake:
            entry.inference_seconds += seconds
            entry.evaluated.append((part.start, evaluation))
            entry.done += len(part.positions)
            return entry.done == len(entry.positions)

    def _drop(self, entry: _Entry) -> None:
        """Takes out of the queue what is left of an entry whose caller has gone or has failed."""
        with self._wake:
            if entry in self._entries:
                self._entries.remove(entry)
                self._waiting -= len(entry.positions) - entry.taken

    def _fail(self, batch: _Batch, error: MovemaskError) -> None:
        for part in batch.parts:
            self._drop(part.entry)
        _tell([(part.entry, error) for part in batch.parts])


def _inferred(entry: _Entry) -> Inferred:
    parts = [evaluation for _, evaluation in sorted(entry.evaluated, key=lambda one: one[0])]
    values = [part.value for part in parts if part.value is not None]
    whole = Evaluation(_joined([part.logits for part in parts]), _joined(values) if values else None)
    return Inferred(whole, entry.queue_seconds, entry.inference_seconds)


def _joined(parts: Sequence[NDArray[Scalar]]) -> NDArray[Scalar]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _tell(results: Sequence[tuple[_Entry, Inferred | MovemaskError]]) -> None:
    """Hands results to the callers' event loops, each loop woken once; callers and loops that have gone are let be."""
    for loop in {entry.loop for entry, _ in results}:
        own = [(entry.future, result) for entry, result in results if entry.loop is loop]
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, own)


def _settle(results: Sequence[tuple[asyncio.Future[Inferred], Inferred | MovemaskError]]) -> None:
    for future, result in results:
        if future.done():
            continue
        if isinstance(result, MovemaskError):
            future.set_exception(result)
        else:
            future.set_result(result)
