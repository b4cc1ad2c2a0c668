"""The recorder: accepts audited batches without blocking; its own thread writes them to the store, many at once."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from movemask.errors import StoreError
from movemask.records import AuditBatch, AuditTable
from movemask.serving.tally import SINCE, UNWRITTEN, Tally
from movemask.store.writer import Store

log = logging.getLogger(__name__)

#: Positions per transaction: enough to be cheap each, too few to hold the lock for long.
_PER_WRITE = 2_000
_FLUSH_SECONDS = 0.5
_MAX_WAITING = 100_000
_PRUNE_EVERY = 600.0  # seconds
_FIRST_RETRY, _LONGEST_RETRY = 0.1, 5.0  # seconds from a failure to the next try; doubled each time


@dataclass(frozen=True, slots=True)
class Freshness:
    """How fresh the stored figures are: they include all that the service's processes answered before `as_of`, in
    seconds since 1970; `waiting` positions are not written yet."""

    as_of: float
    waiting: int


class Recorder:
    """Writes audited positions to the store within `flush_seconds`, the last ones on `close`.

    While the store cannot be written, up to `max_waiting` positions wait; beyond that new ones are dropped and counted.
    A position that can never be written is dropped and counted on its own, whatever batch it is in.

    Parameters
    ----------
    on_waiting : called with how many positions wait and how many were just dropped, whenever either changes
    on_table : called once with each table of audited positions, on the recorder's thread
    tally : where the service's processes add up what waits; None for a process that is alone
    """

    def __init__(
        self,
        store: Store,
        *,
        on_waiting: Callable[[int, int], None],
        on_table: Callable[[AuditTable], None],
        tally: Tally | None = None,
        flush_seconds: float = _FLUSH_SECONDS,
        max_waiting: int = _MAX_WAITING,
    ) -> None:
        self._tally = tally or Tally()
        self._store = store
        self.flush_seconds = flush_seconds
        self.max_waiting = max_waiting
        self._on_waiting = on_waiting
        self._on_table = on_table
        self._wake = threading.Condition()
        self._tickets = count()
        self._expected: dict[int, tuple[float, int]] = {}  # by ticket: since when, and how many positions
        self._audited: list[AuditBatch] = []  # tables are still to be made of these
        self._tables: deque[AuditTable] = deque()  # not written yet, in order of time
        self._unwritten = 0  # positions in both
        self._closing = False
        self._pruned = 0.0
        self.failure: StoreError | None = store.unreachable
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="audit-recorder", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Positions that are not written yet."""
        return self._unwritten + sum(positions for _, positions in list(self._expected.values()))

    def freshness(self) -> Freshness:
        """How fresh figures read from the store after this call are."""
        with self._wake:
            self._count()
        oldest = self._tally.earliest(SINCE)
        return Freshness(time.time() if oldest is None else oldest, int(self._tally.total(UNWRITTEN)))

    def _count(self) -> None:
        """Tells the service's other processes what waits. The caller has the lock."""
        times = [float(one.times[0]) for one in self._audited[:1]]
        times += [float(one.times[0]) for one in islice(self._tables, 1)]
        times += islice((since for since, _ in self._expected.values()), 1)  # in order of time, each of them
        self._tally.put(SINCE, min(times, default=0.0))
        self._tally.put(UNWRITTEN, self.waiting)

    def expect(self, positions: int) -> int:
        """Announces positions that are being answered, and returns the ticket to hand to `audit` with them: they count
        as waiting, and no figure claims to hold them yet."""
        with self._wake:
            ticket = next(self._tickets)
            self._expected[ticket] = time.time(), positions
            self._count()
            return ticket

    def audit(self, audited: Sequence[AuditBatch], tickets: Sequence[int] = ()) -> None:
        """Accepts answered batches to write. Returns at once.

        What was announced under `tickets` and is missing is dropped; so is everything without room for it."""
        with self._wake:
            expected = sum(self._expected.pop(ticket)[1] for ticket in tickets)
            positions = sum(map(len, audited))
            lost = max(0, expected - positions)
            if positions and self.waiting >= self.max_waiting:
                lost += positions
            elif positions:
                idle = not self._audited and not self._tables
                self._audited += [one for one in audited if len(one)]
                self._unwritten += positions
                if idle or self._unwritten >= _PER_WRITE:  # in between the thread only lets them gather
                    self._wake.notify_all()
            self.dropped += lost
            self._count()
        self._on_waiting(self.waiting, lost)

    def close(self, timeout: float = 5.0) -> None:
        """Writes what waits and ends the thread.

        Positions that are not written within `timeout` seconds are lost, and logged. After half of it a database that
        does not answer is given up, and a new connection tried.
        """
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._thread.join(timeout / 2)
        if self._thread.is_alive():
            self._store.hurry()
            self._thread.join(timeout / 2)
        if self.waiting:
            why = self.failure or "the database did not answer in time"
            log.error("%d audit records were not written: %s", self.waiting, why)

    def _work(self) -> None:
        retry = _FIRST_RETRY
        last_failures = 0  # since `close`: a connection may be silent, and the next one not
        while last_failures < 2 and self._gathered():
            self._make()
            try:
                self._write()
            except StoreError as error:
                if self.failure is None:  # the first failure, or the first since a write succeeded
                    log.error("%s; %d audit records wait", error, self.waiting)
                    retry = _FIRST_RETRY
                with self._wake:
                    self.failure = error
                    last_failures += 1 if self._closing else 0
                    self._wake.wait_for(lambda: self._closing, retry)
                retry = min(2 * retry, _LONGEST_RETRY)
            else:
                self._prune()

    def _gathered(self) -> bool:
        """Waits for positions, then up to `flush_seconds` for more, or for as long as an idle thread sleeps; False once
        closed and nothing waits."""
        with self._wake:
            idle = _PRUNE_EVERY if self.failure is None else _LONGEST_RETRY
            self._wake.wait_for(lambda: self._unwritten or self._closing, idle)
            if self._audited and not self._tables:
                self._wake.wait_for(lambda: self._closing or self._unwritten >= _PER_WRITE, self.flush_seconds)
            return bool(self._unwritten) or not self._closing

    def _make(self) -> None:
        """Makes the tables of what has gathered."""
        with self._wake:
            gathered = list(self._audited)
        tables: list[AuditTable] = []
        for batch in AuditBatch.joined(gathered):
            for start in range(0, len(batch), _PER_WRITE):
                tables += _tables(batch.rows(np.arange(start, min(start + _PER_WRITE, len(batch)))))
        for table in tables:
            self._on_table(table)
        with self._wake:
            lost = sum(map(len, gathered)) - sum(map(len, tables))
            self._tables += tables
            del self._audited[: len(gathered)]
            self._unwritten -= lost
            self.dropped += lost
            self._count()
        if lost:
            self._on_waiting(self.waiting, lost)

    def _write(self) -> None:
        """Writes the tables, halving one on failure until a position that can never be written is alone, and dropped.

        After StoreError, `_tables` holds what is not written yet.
        """
        lost = 0
        while self._tables:
            table = self._tables[0]
            try:
                self._store.write(table)
            except StoreError:
                raise
            except Exception:  # a bug; positions that can never be written must not block the others
                if len(table) > 1:
                    middle, end = len(table) // 2, len(table)
                    with self._wake:
                        self._tables[0] = table.rows(np.arange(middle, end))
                        self._tables.appendleft(table.rows(np.arange(middle)))
                    continue
                if not lost:
                    log.exception("an audit record can never be written")
                lost += 1
                self._finished(1)
            else:
                self._finished(0)
        if lost:
            log.error("%d audit records cannot be written and are dropped", lost)

    def _finished(self, lost: int) -> None:
        """Removes the first table, which was written or dropped."""
        with self._wake:
            self._unwritten -= len(self._tables.popleft())
            self.dropped += lost
            self._count()
            if not lost and self.failure is not None:
                self.failure = None
                log.warning("the audit store can be written again")
        self._on_waiting(self.waiting, lost)

    def _prune(self) -> None:
        """Prunes when due, or to probe whether a failed database is back; stops while positions wait."""
        if self.failure is None and time.monotonic() - self._pruned < _PRUNE_EVERY:
            return
        try:
            while self._store.prune():
                if self._unwritten or self._closing:
                    self.failure = None
                    return  # still due
        except StoreError as error:
            if self.failure is None:
                log.warning("%s", error)
        except Exception:  # a bug; positions are written nevertheless
            log.exception("the audit store cannot be pruned")
        else:
            self.failure = None
        self._pruned = time.monotonic()


def _tables(batch: AuditBatch) -> list[AuditTable]:
    """The table of a batch; without the positions that none can be made of."""
    try:
        return [batch.table()]
    except Exception:  # a bug; a position that fails must not cost the others
        if len(batch) > 1:
            middle = len(batch) // 2
            return _tables(batch.rows(np.arange(middle))) + _tables(batch.rows(np.arange(middle, len(batch))))
        log.exception("an audit record cannot be made")
        return []
