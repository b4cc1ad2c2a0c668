"""`Recorder`: accepts answered batches at once, and writes them to the store on a thread of its own."""

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
from movemask.server.ledger.entries import AuditBatch, AuditTable
from movemask.server.ledger.writer import Store
from movemask.server.tally import SINCE, UNWRITTEN, Tally

log = logging.getLogger(__name__)

#: Positions per transaction: many, so that each is cheap, but few enough to lock others out only shortly.
_PER_WRITE = 2_000
_FLUSH_SECONDS = 0.5
_MAX_WAITING = 100_000
_PRUNE_SECONDS = 600.0
#: Seconds from a failure to the next try; the wait doubles from the first to the longest.
_FIRST_RETRY, _LONGEST_RETRY = 0.1, 5.0


@dataclass(frozen=True, slots=True)
class Freshness:
    """How fresh the stored figures are, over all processes of the service.

    as_of : seconds since 1970; positions answered before are in the figures
    waiting : positions that are not written yet
    """

    as_of: float
    waiting: int


class Recorder:
    """Writes answered positions to the store within `flush_seconds`, and the rest on `close`.

    While the store cannot be written, up to `max_waiting` positions wait; further positions are dropped and counted.
    A position that can never be written is dropped and counted; the others of its batch are written.

    Parameters
    ----------
    on_waiting : called with the number of waiting positions and of positions just dropped, when either changes
    on_table : called once with each table, on the recorder's thread
    tally : shared counters of the service's processes; None if there is only this process

    Attributes
    ----------
    failure : why the last write failed; None once a write has succeeded
    dropped : number of positions dropped so far
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
        self._expected: dict[int, tuple[float, int]] = {}  # by ticket: time of the announcement, and positions
        self._audited: list[AuditBatch] = []  # accepted batches
        self._tables: deque[AuditTable] = deque()  # tables of earlier batches, not written yet, oldest first
        self._unwritten = 0  # positions in `_audited` and `_tables`
        self._closing = False
        self._pruned = 0.0  # when pruning was last done (time.monotonic)
        self.failure: StoreError | None = store.unreachable
        self.dropped = 0
        self._thread = threading.Thread(target=self._write_until_closed, name="audit-recorder", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of positions that are answered, or being answered, and not written yet."""
        return self._unwritten + sum(positions for _, positions in list(self._expected.values()))

    def freshness(self) -> Freshness:
        """The freshness of figures that are read after this call."""
        with self._wake:
            self._publish()
        oldest = self._tally.earliest(SINCE)
        return Freshness(time.time() if oldest is None else oldest, int(self._tally.total(UNWRITTEN)))

    def _publish(self) -> None:
        """Publishes to the other processes how many positions wait, and since when. The caller holds the lock."""
        times = [float(batch.times[0]) for batch in self._audited[:1]]  # each of the three is in order of time
        times += [float(table.times[0]) for table in islice(self._tables, 1)]
        times += islice((since for since, _ in self._expected.values()), 1)
        self._tally.put(SINCE, min(times, default=0.0))
        self._tally.put(UNWRITTEN, self.waiting)

    def expect(self, positions: int) -> int:
        """Announces positions that are being answered. Returns a ticket to pass to `audit` with them.

        Until then they count as waiting, so no figures claim to include them.
        """
        with self._wake:
            ticket = next(self._tickets)
            self._expected[ticket] = time.time(), positions
            self._publish()
            return ticket

    def audit(self, audited: Sequence[AuditBatch], tickets: Sequence[int] = ()) -> None:
        """Accepts answered batches to write. Returns at once.

        Positions announced under `tickets` that are missing count as dropped. If too many positions wait, all of these
        are dropped.
        """
        with self._wake:
            expected = sum(self._expected.pop(ticket)[1] for ticket in tickets)
            positions = sum(map(len, audited))
            lost = max(0, expected - positions)
            if positions and self.waiting >= self.max_waiting:
                lost += positions
            elif positions:
                idle = not self._audited and not self._tables
                self._audited += [batch for batch in audited if len(batch)]
                self._unwritten += positions
                if idle or self._unwritten >= _PER_WRITE:  # otherwise the thread is already awake, or waits for more
                    self._wake.notify_all()
            self.dropped += lost
            self._publish()
        self._on_waiting(self.waiting, lost)

    def close(self, timeout: float = 5.0) -> None:
        """Writes the waiting positions and ends the thread.

        Positions not written within `timeout` seconds are lost; their number is logged. After half of that time, a
        silent connection to the database is given up and a new one is tried.
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

    def _write_until_closed(self) -> None:
        """Runs on the thread: writes, tries again after failures, and prunes."""
        retry = _FIRST_RETRY
        last_failures = 0  # after `close`: two tries, since the first may have used a silent connection
        while last_failures < 2 and self._wait_for_positions():
            self._make_tables()
            try:
                self._write_tables()
            except StoreError as error:
                if self.failure is None:  # the first failure since a write succeeded
                    log.error("%s; %d audit records wait", error, self.waiting)
                    retry = _FIRST_RETRY
                with self._wake:
                    self.failure = error
                    last_failures += 1 if self._closing else 0
                    self._wake.wait_for(lambda: self._closing, retry)
                retry = min(2 * retry, _LONGEST_RETRY)
            else:
                self._prune()

    def _wait_for_positions(self) -> bool:
        """Waits for positions, then up to `flush_seconds` for more. False once closed with nothing left to write.

        True without positions when it is time to prune, or to try a failed database again.
        """
        with self._wake:
            idle = _PRUNE_SECONDS if self.failure is None else _LONGEST_RETRY
            self._wake.wait_for(lambda: self._unwritten or self._closing, idle)
            if self._audited and not self._tables:
                self._wake.wait_for(lambda: self._closing or self._unwritten >= _PER_WRITE, self.flush_seconds)
            return bool(self._unwritten) or not self._closing

    def _make_tables(self) -> None:
        """Turns the accepted batches into tables. Positions that no table can be made of are dropped."""
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
            self._publish()
        if lost:
            self._on_waiting(self.waiting, lost)

    def _write_tables(self) -> None:
        """Writes the tables. A table that cannot be written is halved until the faulty position is alone and dropped.

        After StoreError, `_tables` holds the tables that are not written yet.
        """
        lost = 0
        while self._tables:
            table = self._tables[0]
            try:
                self._store.write(table)
            except StoreError:
                raise
            except Exception:  # a bug: some position of the table can never be written
                if len(table) > 1:
                    middle, end = len(table) // 2, len(table)
                    with self._wake:
                        self._tables[0] = table.rows(np.arange(middle, end))
                        self._tables.appendleft(table.rows(np.arange(middle)))
                    continue
                if not lost:
                    log.exception("an audit record can never be written")
                lost += 1
                self._remove_table(lost=1)
            else:
                self._remove_table()
        if lost:
            log.error("%d audit records cannot be written and are dropped", lost)

    def _remove_table(self, lost: int = 0) -> None:
        """Removes the first table, which was written, or dropped with `lost` positions."""
        with self._wake:
            self._unwritten -= len(self._tables.popleft())
            self.dropped += lost
            self._publish()
            if not lost and self.failure is not None:
                self.failure = None
                log.warning("the audit store can be written again")
        self._on_waiting(self.waiting, lost)

    def _prune(self) -> None:
        """Prunes the store every ten minutes, and to find out whether a failed database is back.

        If positions wait, it goes on after the next write.
        """
        if self.failure is None and time.monotonic() - self._pruned < _PRUNE_SECONDS:
            return
        try:
            while self._store.prune():
                if self._unwritten or self._closing:
                    self.failure = None
                    return  # `_pruned` stays, so pruning is still due
        except StoreError as error:
            if self.failure is None:
                log.warning("%s", error)
        except Exception:  # a bug; positions are written nevertheless
            log.exception("the audit store cannot be pruned")
        else:
            self.failure = None
        self._pruned = time.monotonic()


def _tables(batch: AuditBatch) -> list[AuditTable]:
    """The tables of a batch, without the positions that no table can be made of: usually one table."""
    try:
        return [batch.table()]
    except Exception:  # a bug: some position of the batch can never be recorded
        if len(batch) > 1:
            middle = len(batch) // 2
            return _tables(batch.rows(np.arange(middle))) + _tables(batch.rows(np.arange(middle, len(batch))))
        log.exception("an audit record cannot be made")
        return []
