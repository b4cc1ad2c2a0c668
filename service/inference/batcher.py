"""The batcher: whatever waits is run as one batch, as soon as the network is free.

One thread owns the session. It sleeps while nothing waits, so there is no polling, and a lone position is run
at once, so there is no added delay. While a batch runs, what arrives waits and becomes the next batch.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.encoding.encoded import EncodedPosition
from service.errors import InferenceFailed, MovemaskError, Overloaded, ShuttingDown
from service.inference.model import Model


@dataclass(frozen=True, slots=True)
class Inferred:
    """What the network said of the positions of one submission, in order, and how long that took.

    logits `[B, A]`; value float64 `[B, 3]` or None; `queue_seconds` from submission to the start of the first
    batch they were in, `inference_seconds` the time of the batches they were in.
    """

    logits: NDArray[np.floating]
    value: NDArray[np.float64] | None
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
    queue_seconds: float = 0.0
    inference_seconds: float = 0.0
    logits: list[NDArray[np.floating]] = field(default_factory=list)
    values: list[NDArray[np.float64]] = field(default_factory=list)


class Batcher:
    """A bounded queue in front of one model, and the thread that runs it.

    Parameters
    ----------
    max_batch : positions in one run of the network
    max_waiting : positions that may wait; a submission that would pass it raises Overloaded, unless nothing waits
    watch : called with each BatchRun, on the batcher's thread
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
        self._thread = threading.Thread(target=self._work, name=f"network-{model.name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Positions that wait for a batch."""
        return self._waiting

    @property
    def alive(self) -> bool:
        """Whether the network's thread takes work."""
        return self._thread.is_alive() and not self._closing

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
            self._wake.notify()
        try:
            return await entry.future
        finally:
            self._drop(entry)

    def close(self) -> None:
        """Runs what waits, takes no more, and ends the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            positions = [position for _, part in batch for position in part]
            started = time.perf_counter()
            try:
                evaluation = self.model.evaluate(positions)
            except MovemaskError as error:
                self._fail(batch, error)
                continue
            except Exception as error:  # a batch that breaks must not take the thread with it
                self._fail(batch, InferenceFailed(f"model {self.model.name}: {type(error).__name__}: {error}"))
                continue
            seconds = time.perf_counter() - started
            self._seconds_per_position = seconds / len(positions)
            if self._watch is not None:
                queued = tuple(entry.queue_seconds for entry, _ in batch if not entry.logits)
                self._watch(BatchRun(self.model.name, len(positions), seconds, self._waiting, queued))
            start = 0
            for entry, part in batch:
                span = slice(start, start + len(part))
                start += len(part)
                entry.inference_seconds += seconds
                entry.logits.append(evaluation.logits[span])
                if evaluation.value is not None:
                    entry.values.append(evaluation.value[span])
                if entry.taken == len(entry.positions):
                    _tell(entry, _inferred(entry))

    def _next_batch(self) -> list[tuple[_Entry, Sequence[EncodedPosition]]]:
        """Waits for work and takes up to `max_batch` positions in order of arrival; empty when closing and
        nothing waits."""
        with self._wake:
            while True:
                batch: list[tuple[_Entry, Sequence[EncodedPosition]]] = []
                room = self._max_batch
                while self._entries and room:
                    entry = self._entries[0]
                    if entry.taken == 0:
                        entry.queue_seconds = time.perf_counter() - entry.submitted
                    part = entry.positions[entry.taken : entry.taken + room]
                    entry.taken += len(part)
                    room -= len(part)
                    self._waiting -= len(part)
                    batch.append((entry, part))
                    if entry.taken == len(entry.positions):
                        self._entries.popleft()
                if batch or self._closing:
                    return batch
                self._wake.wait()

    def _drop(self, entry: _Entry) -> None:
        """Takes out of the queue what is left of an entry whose caller has gone or has failed."""
        with self._wake:
            if entry in self._entries:
                self._entries.remove(entry)
                self._waiting -= len(entry.positions) - entry.taken

    def _fail(self, batch: Sequence[tuple[_Entry, Sequence[EncodedPosition]]], error: MovemaskError) -> None:
        for entry, _ in batch:
            self._drop(entry)
            _tell(entry, error)


def _inferred(entry: _Entry) -> Inferred:
    logits = entry.logits[0] if len(entry.logits) == 1 else np.concatenate(entry.logits)
    value = None
    if entry.values:
        value = entry.values[0] if len(entry.values) == 1 else np.concatenate(entry.values)
    return Inferred(logits, value, entry.queue_seconds, entry.inference_seconds)


def _tell(entry: _Entry, result: Inferred | MovemaskError) -> None:
    """Hands the result to the caller's event loop, unless the caller, or its loop, has gone."""

    def settle() -> None:
        if entry.future.done():
            return
        if isinstance(result, MovemaskError):
            entry.future.set_exception(result)
        else:
            entry.future.set_result(result)

    if not entry.loop.is_closed():
        entry.loop.call_soon_threadsafe(settle)
