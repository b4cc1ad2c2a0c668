"""`Recorder`: accepts answered batches at once, and writes them to the ledger on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from movemask.board.boards import Flags
from movemask.errors import LedgerError
from movemask.server.ledger.entries import LedgerBatch, LedgerTable
from movemask.server.ledger.ledger import Ledger

log = logging.getLogger(__name__)

#: Positions per transaction: many, so that each is cheap, but few enough to lock others out only shortly.
_PER_WRITE = 2_000
_MAX_WAITING = 100_000
_PRUNE_SECONDS = 30.0
#: Seconds from a failure to the next try; the wait doubles from the first to the longest.
_FIRST_RETRY, _LONGEST_RETRY = 0.1, 5.0

#: Longest FEN that is written. Move numbers have no limit, and PostgreSQL's index rows have one.
_LONGEST_FEN = 1_000


class Recorder:
    """Writes answered positions to the ledger at once, and the rest on `close`.

    While the ledger cannot be opened or written, up to `max_waiting` positions wait; further positions are dropped and
    counted. So are positions whose figures are no probabilities, and batches that raise.

    Parameters
    ----------
    on_waiting : called with the number of waiting positions and of positions just dropped, when either changes
    on_table : called once with each table, on the recorder's thread

    Attributes
    ----------
    waiting : number of positions that are accepted and not written yet
    failure : why the ledger could not be opened or written at the last try; None if it could
    dropped : number of positions dropped so far
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        on_waiting: Callable[[int, int], None],
        on_table: Callable[[LedgerTable], None],
        max_waiting: int = _MAX_WAITING,
    ) -> None:
        self._ledger = ledger
        self.max_waiting = max_waiting
        self._on_waiting = on_waiting
        self._on_table = on_table
        self._wake = threading.Condition()
        self._gathered: list[LedgerBatch] = []  # accepted since the last tables were made
        self._tables: deque[LedgerTable] = deque()  # not written yet, oldest first
        self._closing = False
        self._prune_at = 0.0  # time.monotonic
        self.waiting = 0
        self.failure: LedgerError | None = None
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def record(self, batches: Sequence[LedgerBatch], lost: int = 0) -> None:
        """Accepts answered batches to write, and counts `lost` answers as dropped. Returns at once.

        If too many positions wait, the batches are dropped.
        """
        positions = sum(map(len, batches))
        with self._wake:
            if self.waiting >= self.max_waiting:
                lost += positions
            elif positions:
                self._gathered += [batch for batch in batches if len(batch)]
                self.waiting += positions
                self._wake.notify_all()
            self.dropped += lost
        self._on_waiting(self.waiting, lost)

    def close(self, timeout: float = 5.0) -> None:
        """Writes the waiting positions and ends the thread. Logs how many are not written after `timeout` seconds."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._thread.join(timeout)
        if self.waiting:
            why = self.failure or "the database did not answer in time"
            log.error("%d audit records were not written: %s", self.waiting, why)

    def _run(self) -> None:
        """Runs on the thread until `close`: opens the ledger at once, writes, prunes, tries again after failures."""
        retry = _FIRST_RETRY
        tries = 2  # after `close`: the first may use a connection that is dead
        while tries:
            try:
                while self._wait():
                    self._make_tables()
                    self._write_tables()
                    self._prune()
                return
            except LedgerError as error:
                if self.failure is None:
                    log.error("%s; %d audit records wait", error, self.waiting)
                    retry = _FIRST_RETRY
                self._prune_at = 0.0  # tried again without positions too
                with self._wake:
                    self.failure = error
                    tries -= self._closing
                    self._wake.wait_for(lambda: self._closing, retry)
                retry = min(2 * retry, _LONGEST_RETRY)
            except Exception:  # a bug; other positions are written nevertheless
                log.exception("the ledger was not pruned")

    def _wait(self) -> bool:
        """Waits for positions, or until pruning is due. False once closed with nothing left to write."""
        with self._wake:
            due = self._prune_at - time.monotonic()
            self._wake.wait_for(lambda: self.waiting or self._closing, max(0.0, due))
            return bool(self.waiting) or not self._closing

    def _make_tables(self) -> None:
        """Turns the gathered batches into tables of positions that can be written."""
        with self._wake:
            gathered, self._gathered = self._gathered, []
        for joined in LedgerBatch.by_network(gathered):
            for start in range(0, len(joined), _PER_WRITE):
                batch = joined.rows(np.arange(start, min(start + _PER_WRITE, len(joined))))
                try:
                    table = batch.table()
                    sound = _sound(table)
                    if not sound.all():
                        table = table.rows(np.flatnonzero(sound))
                    self._on_table(table)
                except Exception:  # a bug
                    log.exception("%d audit records cannot be made", len(batch))
                    self._done(lost=len(batch))
                else:
                    self._tables.append(table)
                    if len(table) < len(batch):
                        lost = len(batch) - len(table)
                        log.error("%d audit records cannot be written: no probabilities, or too long a FEN", lost)
                        self._done(lost=lost)

    def _write_tables(self) -> None:
        """Writes the tables. After LedgerError, `_tables` has those that are not written yet."""
        while self._tables:
            table = self._tables[0]
            try:
                if len(table):
                    self._ledger.write(table)
            except LedgerError:
                raise
            except Exception:  # a bug: the database refuses some position whenever it is tried
                log.exception("%d audit records cannot be written and are dropped", len(table))
                self._tables.popleft()
                self._done(lost=len(table))
            else:
                self._tables.popleft()
                self._works()
                self._done(written=len(table))

    def _prune(self) -> None:
        """Prunes the ledger if that is due; goes on after the next write if positions wait meanwhile."""
        if time.monotonic() < self._prune_at:
            return
        self._prune_at = time.monotonic() + _PRUNE_SECONDS
        while self._ledger.prune():
            if self.waiting:
                self._prune_at = 0.0
                break
        self._works()

    def _done(self, *, written: int = 0, lost: int = 0) -> None:
        """Counts positions that wait no longer."""
        with self._wake:
            self.waiting -= written + lost
            self.dropped += lost
        self._on_waiting(self.waiting, lost)

    def _works(self) -> None:
        if self.failure is not None:
            self.failure = None
            log.warning("the ledger can be written again")


def _sound(table: LedgerTable) -> Flags:
    """Which positions can be written, bool `[B]`: their leakages are finite and not negative, or unmeasured."""
    sound = np.isfinite(table.explained.by_cause).all(axis=1)
    sound &= np.array([len(fen) <= _LONGEST_FEN for fen in table.fens], dtype=np.bool_)
    for measured in table.measured.values():
        leaked = measured.leaked
        sound &= np.isnan(leaked) | ((leaked >= 0) & (leaked < np.inf) & ~np.isnan(measured.kl))
    return sound
