"""The recorder: accepts audit records without blocking; its own thread writes them to the store in batches."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from movemask.errors import StoreError
from movemask.leakage.audited import Audited, records_of
from movemask.leakage.record import AuditRecord
from movemask.store.store import Store

log = logging.getLogger(__name__)

#: Records per transaction: enough to be cheap each, too few to hold the lock for long.
_PER_WRITE = 2_000
_PRUNE_EVERY = 600.0  # seconds
_LONGEST_RETRY = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Freshness:
    """How fresh the stored figures are: they include all that this process answered before `as_of`, in seconds since
    1970; `waiting` records are not written yet."""

    as_of: float
    waiting: int


class Recorder:
    """Writes records to the store within `flush_seconds`, the last ones on `close`.

    While the store cannot be written, up to `max_waiting` records wait; beyond that new ones are dropped and counted.
    A record that can never be written is dropped and counted on its own, whatever batch it is in.

    Parameters
    ----------
    on_waiting : called with how many records wait and how many were just dropped, whenever either changes
    on_records : called with the records made of audited batches
    """

    def __init__(
        self,
        store: Store,
        *,
        flush_seconds: float,
        max_waiting: int,
        on_waiting: Callable[[int, int], None] | None = None,
        on_records: Callable[[Sequence[AuditRecord]], None] | None = None,
    ) -> None:
        self._store = store
        self._on_records = on_records
        self._expected: dict[int, tuple[float, int]] = {}  # by thread: since when, and how many positions
        self._audited: list[Audited] = []  # records are still to be made of these
        self._unmade = 0  # positions in them
        self._making: Sequence[Audited] = ()  # records are being made of these
        self._flush_seconds = flush_seconds
        self._max_waiting = max_waiting
        self._on_waiting = on_waiting
        self._wake = threading.Condition()
        self._waiting: deque[AuditRecord] = deque()
        self._batch: Sequence[AuditRecord] = ()  # being written
        self._flushing = 0  # who waits in `flush`
        self._closing = False
        self._pruned = 0.0
        self.failure = store.unreachable
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="audit-recorder", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Records that are not written yet."""
        expected = sum(count for _, count in list(self._expected.values()))
        return expected + self._unmade + len(self._waiting) + len(self._batch)

    def freshness(self) -> Freshness:
        """How fresh figures read from the store after this call are."""
        with self._wake:
            records = [*self._batch[:1], *islice(self._waiting, 1)]
            batches = [*self._making[:1], *self._audited[:1]]
            times = [one.time for one in records] + [one.times[0] for one in batches]
            times += [since for since, _ in self._expected.values()]
            return Freshness(min(times, default=time.time()), self.waiting)

    def record(self, records: Sequence[AuditRecord], failed: int = 0) -> None:
        """Accepts records to write, without blocking; `failed` more could not be made and count as dropped."""
        with self._wake:
            room = max(0, self._max_waiting - self.waiting)
            idle = not self._waiting
            self._waiting.extend(records[:room])
            lost = failed + len(records) - len(records[:room])
            self.dropped += lost
            if idle or len(self._waiting) >= _PER_WRITE:  # in between, the thread is waiting for a batch to fill
                self._wake.notify_all()
        self._notify(lost)

    def expect(self, positions: int) -> None:
        """Says that so many more positions are being answered, which this thread hands to `audit` next: they count as
        waiting, so that no figure claims to hold them yet."""
        with self._wake:
            since, before = self._expected.get(threading.get_ident(), (time.time(), 0))
            self._expected[threading.get_ident()] = since, before + positions

    def audit(self, audited: Sequence[Audited]) -> None:
        """Takes batches that were answered; the thread makes their records later, of many at once. Returns at once.

        What was expected and is missing is dropped; so is everything without room for it."""
        with self._wake:
            _, expected = self._expected.pop(threading.get_ident(), (0.0, 0))
            positions = sum(map(len, audited))
            lost = max(0, expected - sum(len(one.positions) for one in audited))
            if positions and self.waiting >= self._max_waiting:
                lost += positions
            elif audited:
                idle = not self._audited and not self._waiting
                self._audited += audited
                self._unmade += positions
                if idle or self._unmade >= _PER_WRITE:  # in between the thread only lets them gather
                    self._wake.notify_all()
            if self._flushing:
                self._wake.notify_all()
            self.dropped += lost
        self._notify(lost)

    def flush(self, timeout: float) -> bool:
        """Waits until everything answered before is written; False if the store fails or after `timeout` seconds."""
        with self._wake:
            self._flushing += 1
            self._wake.notify_all()
            try:
                # What is expected is taken first, whatever the store does.
                self._wake.wait_for(
                    lambda: not self._expected and (not self.waiting or self.failure is not None), timeout
                )
            finally:
                self._flushing -= 1
            return not self.waiting

    def close(self, timeout: float = 5.0) -> None:
        """Writes the waiting records and ends the thread; those not written within `timeout` seconds are lost, and
        logged."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._thread.join(timeout)
        if self.waiting:
            log.error("%d audit records were not written: %s", self.waiting, self.failure)

    def _work(self) -> None:
        retry = 0.1
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            if not batch:
                self._prune()
                continue
            try:
                self._write(batch)
            except StoreError as error:
                if self.failure is None:
                    log.error("%s; %d audit records wait", error, self.waiting)
                self._put_back(str(error))
                if self._closing:
                    return
                with self._wake:
                    self._wake.wait_for(lambda: self._closing, retry)
                retry = min(2 * retry, _LONGEST_RETRY)
                continue
            retry = 0.1
            self._prune()

    def _next_batch(self) -> list[AuditRecord] | None:
        """The next records to write, gathered for up to `flush_seconds`; empty after an idle wait, None once closed
        and nothing waits."""
        with self._wake:
            idle = _PRUNE_EVERY if self.failure is None else _LONGEST_RETRY
            self._wake.wait_for(lambda: self._waiting or self._audited or self._closing, idle)
            if not self._waiting and not self._audited:
                return None if self._closing else []
            self._wake.wait_for(
                lambda: self._flushing or self._closing or self._unmade + len(self._waiting) >= _PER_WRITE,
                self._flush_seconds,
            )
            audited, self._audited = self._audited, []
            self._making = audited
        records, lost = _records(audited)
        if self._on_records is not None:
            self._on_records(records)
        with self._wake:
            self._unmade -= sum(map(len, audited))
            self._waiting.extend(records)
            self.dropped += lost
            batch = [self._waiting.popleft() for _ in range(min(_PER_WRITE, len(self._waiting)))]
            self._batch = batch
            self._making = ()
            self._wake.notify_all()  # there may be nothing to write
        if lost:
            self._notify(lost)
        return batch

    def _write(self, batch: Sequence[AuditRecord]) -> None:
        """Writes a batch, bisecting it on failure until each record that can never be written is alone and dropped.

        After StoreError, `_batch` holds what is not written yet.
        """
        parts, lost = [batch], 0
        while parts:
            part = parts.pop()
            try:
                self._store.write(part)
            except StoreError:
                raise
            except Exception:  # a bug; records that can never be written must not block the others
                if len(part) > 1:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
                    continue
                if not lost:
                    log.exception("an audit record can never be written")
                lost += 1
                self._finished(part, dropped=True)
            else:
                self._finished(part, dropped=False)
        if lost:
            log.error("%d audit records cannot be written and are dropped", lost)

    def _finished(self, part: Sequence[AuditRecord], *, dropped: bool) -> None:
        """Removes the first records of `_batch`, which were written or dropped."""
        with self._wake:
            self._batch = self._batch[len(part) :]
            if dropped:
                self.dropped += len(part)
            elif self.failure is not None:
                self.failure = None
                log.warning("the audit store can be written again")
            self._wake.notify_all()
        self._notify(len(part) if dropped else 0)

    def _notify(self, lost: int) -> None:
        if self._on_waiting is not None:
            try:
                self._on_waiting(self.waiting, lost)
            except Exception:  # a failing observer must not stop the writer
                log.exception("the observer of the audit's backlog failed")

    def _put_back(self, failure: str) -> None:
        with self._wake:
            self._waiting.extendleft(reversed(self._batch))
            self._batch = ()
            self.failure = failure
            self._wake.notify_all()

    def _prune(self) -> None:
        """Prunes when due, or to probe whether a failed database is back."""
        if self.failure is None and time.monotonic() - self._pruned < _PRUNE_EVERY:
            return
        self._pruned = time.monotonic()
        try:
            self._store.prune()
        except StoreError as error:
            if self.failure is None:
                log.warning("%s", error)
        except Exception:  # a bug; records are written nevertheless
            log.exception("the audit store cannot be pruned")
        else:
            self.failure = None


def _records(audited: Sequence[Audited]) -> tuple[list[AuditRecord], int]:
    """The records of batches, and how many could not be made; a failing one does not cost the others."""
    records: list[AuditRecord] = []
    lost = 0
    for batch in Audited.joined(audited):
        try:
            records += records_of(batch)
        except Exception:  # a bug
            log.exception("an audit record cannot be made")
            for row in range(len(batch.positions)):
                try:
                    records += records_of(batch.row(row))
                except Exception:
                    lost += 1
    return records, lost
