"""`Recorder`: what follows the replies, on one thread of each worker.

answered batches ─► gathered for 0.4 s ─► metrics ─► leakage, causes: a table ─► the ledger
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Sequence

import numpy as np

from movemask.errors import LedgerError, UnknownLedgerVersion
from movemask.leakage.causes import CAUSES
from movemask.leakage.kinds import Plan
from movemask.server.ledger.entries import AnsweredBatch, LedgerTable
from movemask.server.ledger.ledger import Ledger
from movemask.server.metrics import Metrics

log = logging.getLogger(__name__)

#: Seconds that batches are gathered for. Measured and written together they cost less, but an answer should be in the
#: ledger within half a second.
_TOGETHER = 0.4

#: Positions per table, and so per transaction: many, so that each is cheap, but few enough to lock others out only
#: shortly.
_PER_TABLE = 2_000

_MAX_WAITING = 100_000

#: Most bytes of logits that wait to be measured, about 17,000 positions. They are measured at once unless a statement
#: of the database does not return.
_MAX_BYTES = 128 << 20

_PRUNE_SECONDS = 30.0
#: Seconds from a failure to the next try; the wait doubles from the first to the longest.
_FIRST_RETRY, _LONGEST_RETRY = 0.1, 5.0


class Recorder:
    """Counts answered batches in the metrics, measures their leakage, and writes it to the ledger, after the replies.

    Every answered position is written, waits, or is lost. While the ledger cannot be opened or written, `max_waiting`
    measured positions wait. These are lost: positions beyond that number, positions with invalid figures or too long a
    FEN, batches that raise, and the positions that still wait at the end of a stop.

    Parameters
    ----------
    plan : the kinds of leakage to measure

    Attributes
    ----------
    waiting : number of positions that are not written yet
    lost : number of positions that were not and will not be written
    failure : why the ledger could not be opened or written at the last try; None if it could
    """

    def __init__(
        self,
        ledger: Ledger,
        metrics: Metrics,
        plan: Plan | None = None,
        *,
        max_waiting: int = _MAX_WAITING,
    ) -> None:
        self._ledger, self._metrics, self._plan = ledger, metrics, plan or Plan()
        self.max_waiting = max_waiting
        self._changed = threading.Condition()
        self._batches: list[AnsweredBatch] = []  # not measured yet, oldest first
        self._bytes = 0  # of their logits
        self._tables: deque[LedgerTable] = deque()  # not written yet, oldest first
        self._closing = self._abandoned = False
        self._tried_to_open = threading.Event()
        self._prune_at = self._retry_at = 0.0  # time.monotonic
        self._retry = _FIRST_RETRY
        self.waiting = self.lost = 0
        self.failure: LedgerError | None = None
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def check_version(self) -> None:
        """Waits until the ledger has been opened for the first time, or could not be.

        Raises UnknownLedgerVersion: unlike other failures, this one does not pass.
        """
        self._tried_to_open.wait()
        if isinstance(self.failure, UnknownLedgerVersion):
            raise self.failure

    def record(self, batch: AnsweredBatch) -> None:
        """Takes a batch, from any thread. It waits neither for the database nor for what is being measured."""
        positions, size = len(batch), batch.nbytes
        with self._changed:
            self.waiting += positions
            fits = self._bytes + size <= _MAX_BYTES
            if fits:
                self._batches.append(batch)
                self._bytes += size
            if len(self._batches) == 1 or self._bytes > _MAX_BYTES // 2:
                self._changed.notify_all()
        if not fits:
            self._done(lost=positions)

    def close(self, timeout: float = 5.0) -> None:
        """Writes the waiting positions and ends the thread. What is not written after `timeout` seconds is lost.

        A write that is under way then may still succeed; its positions count as lost.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout)
        with self._changed:
            self._abandoned, lost, self.waiting = True, self.waiting, 0
            self.lost += lost
        if lost:
            self._metrics.ledger_lost.inc(lost)
            why = self.failure or "the database did not answer in time"
            log.error("%d positions were not written to the ledger: %s", lost, why)

    def _run(self) -> None:
        """Runs on the thread until `close`. Opens the ledger at once, so that a failure is logged early."""
        try:
            self._ledger.database.open()
        except UnknownLedgerVersion as error:
            self.failure = error  # which `check_version` raises
        except LedgerError as error:
            self._fail(error)
        finally:
            self._tried_to_open.set()
        tries = 2  # once closed: the first may use a connection that is dead
        while self._goes_on(tries):
            self._measure_gathered()
            if time.monotonic() < self._retry_at and not self._closing:
                continue
            try:
                self._write()
                self._prune()
            except LedgerError as error:
                self._fail(error)
                tries -= self._closing
            except Exception:  # a bug; other positions are written nevertheless
                log.exception("the ledger was not pruned")

    def _goes_on(self, tries: int) -> bool:
        """Returns whether there is work, or more may come."""
        if self._abandoned or not tries:
            return False
        return bool(self._batches or self._tables) or not self._closing

    def _measure_gathered(self) -> None:
        """Waits for batches and gathers more, or until a try or pruning is due. Makes tables of the batches."""
        with self._changed:
            due = self._retry_at if self.failure else self._prune_at
            if self._changed.wait_for(
                lambda: self._batches or self._closing, max(0.0, due - time.monotonic())
            ):
                self._changed.wait_for(
                    lambda: self._closing or self._bytes > _MAX_BYTES // 2, _TOGETHER
                )
            gathered = list(self._batches)
        parts: dict[tuple[int, int], list[AnsweredBatch]] = defaultdict(list)
        positions = Counter[int]()
        for batch in gathered:
            model = id(batch.model)
            parts[model, positions[model] // _PER_TABLE].append(batch)
            positions[model] += len(batch)
        for part in parts.values():
            self._measure(part)
        measured = sum(batch.nbytes for batch in gathered)
        with self._changed:
            del self._batches[: len(gathered)]
            self._bytes -= measured

    def _measure(self, batches: Sequence[AnsweredBatch]) -> None:
        """Counts one model's batches in the metrics, and makes a table of their positions."""
        positions = sum(map(len, batches))
        room = self.max_waiting - sum(map(len, self._tables))
        recorded = 0
        try:
            _count(self._metrics, batches)
            if positions and room > 0:
                # One draw for all: every kind costs most for the first position of a table.
                kinds = self._plan.draw_kinds(random.random())
                table = LedgerTable.of(batches, kinds, self._plan.threshold)
                sound = table.sound()
                if len(sound) < positions:
                    log.error(
                        "%d positions have no probabilities, or too long a FEN",
                        positions - len(sound),
                    )
                if min(len(sound), room) < positions:
                    table = table.rows(sound[:room])
                _count_leakage(self._metrics, table)
                if self._fits_last_table(table):
                    self._tables[-1] = LedgerTable.joined([self._tables[-1], table])
                else:
                    self._tables.append(table)
                recorded = len(table)
        except Exception:  # a bug
            log.exception("the leakage of %d positions cannot be measured", positions)
        self._done(lost=positions - recorded)

    def _fits_last_table(self, table: LedgerTable) -> bool:
        """Returns whether a table can be added to the last waiting one.

        A table of few positions takes as much memory as one of many. The first waiting table never grows: it may have
        been written already, and its reply been lost.
        """
        last = self._tables[-1] if len(self._tables) > 1 else None
        return (
            last is not None
            and (last.digest, last.model, *last.measured)
            == (table.digest, table.model, *table.measured)
            and len(last) + len(table) <= _PER_TABLE
        )

    def _write(self) -> None:
        """Writes the tables. After LedgerError, `_tables` has those that are not written yet."""
        while self._tables:
            table = self._tables[0]
            written = len(table)
            try:
                self._ledger.write(table)
            except LedgerError:
                raise
            except Exception:  # a bug: the database refuses some position whenever it is tried
                log.exception("%d positions cannot be written to the ledger", len(table))
                written = 0
            self._tables.popleft()
            self._done(written=written, lost=len(table) - written)
            if written:
                self._note_success()

    def _prune(self) -> None:
        """Prunes the ledger if that is due; goes on after the next write if positions wait meanwhile."""
        if time.monotonic() < self._prune_at:
            return
        self._prune_at = time.monotonic() + _PRUNE_SECONDS
        while self._ledger.prune():
            if self.waiting or self._closing:
                self._prune_at = 0.0
                break
        self._note_success()

    def _done(self, *, written: int = 0, lost: int = 0) -> None:
        """Counts positions that wait no longer. Does nothing after `close`, which has counted them as lost."""
        with self._changed:
            if self._abandoned:
                return
            self.waiting -= written + lost
            self.lost += lost
        if lost:
            self._metrics.ledger_lost.inc(lost)

    def _fail(self, error: LedgerError) -> None:
        """Notes a failure that may pass, and when to try again. Logs the first of a series."""
        if self.failure is None:
            log.error("%s; %d positions wait", error, self.waiting)
            self._retry = _FIRST_RETRY
        self._prune_at = 0.0  # tried again without positions too
        self.failure, self._retry_at = error, time.monotonic() + self._retry
        self._retry = min(2 * self._retry, _LONGEST_RETRY)

    def _note_success(self) -> None:
        if self.failure is not None:
            self.failure, self._retry_at = None, 0.0
            log.warning("the ledger can be written again")


def _count(metrics: Metrics, batches: Sequence[AnsweredBatch]) -> None:
    """Counts one model's batches: positions by status, and runs of the network."""
    model = batches[0].model.name
    for status, count in Counter(
        answer.status for batch in batches for answer in batch.answers
    ).items():
        metrics.positions.labels(model, status).inc(count)
    batch_size = metrics.batch_size.labels(model)
    queue_seconds = metrics.queue_seconds.labels(model)
    inference_seconds = metrics.inference_seconds.labels(model)
    for batch in batches:
        if batch.evaluated is not None:
            metrics.batches.labels(model).inc()
            batch_size.observe(len(batch.evaluated.batch))
            inference_seconds.observe(batch.evaluated.seconds)
        for answer in batch.answers:
            if answer.evaluated is not None:
                queue_seconds.observe(answer.waited)


def _count_leakage(metrics: Metrics, table: LedgerTable) -> None:
    """Counts the leakage of positions whose figures are sound: a NaN would make a counter NaN for good."""
    mask = "true" if table.trained_with_mask else "false"
    for kind, measured in table.measured.items():
        known = ~np.isnan(measured.leaked)
        leakage = metrics.leakage.labels(table.model, kind, mask)
        for leaked in measured.leaked[known].tolist():
            leakage.observe(leaked)
        if changed := int((measured.flipped & known).sum()):
            metrics.top_move_changed.labels(table.model, kind, mask).inc(changed)
    for cause, mass in zip(CAUSES, table.explained.by_cause.sum(axis=0).tolist(), strict=True):
        if mass > 0:
            metrics.illegal_mass.labels(table.model, cause.value, mask).inc(mass)
