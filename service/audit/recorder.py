"""The recorder: takes records without waiting, and a thread of its own writes them to the store in batches."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from service.audit.record import AuditRecord
from service.audit.store import Store
from service.errors import StoreError

log = logging.getLogger(__name__)

#: Records in one transaction: long enough to be cheap, short enough not to hold the lock for long.
_PER_WRITE = 2_000
_PRUNE_EVERY = 600.0  # seconds
_LONGEST_RETRY = 5.0  # seconds


class Recorder:
    """Writes what `record` is given within `flush_seconds`, and the rest when closed.

    While the store cannot be written, records wait, up to `max_waiting`; past that the newest are dropped and counted.

    Parameters
    ----------
    watch : called with how many records wait and how many were just dropped, whenever either changes
    """

    def __init__(
        self,
        store: Store,
        *,
        flush_seconds: float,
        max_waiting: int,
        watch: Callable[[int, int], None] | None = None,
    ) -> None:
        self._store = store
        self._flush_seconds = flush_seconds
        self._max_waiting = max_waiting
        self._watch = watch
        self._wake = threading.Condition()
        self._waiting: deque[AuditRecord] = deque()
        self._writing = 0
        self._flush_asked = False
        self._closing = False
        self._pruned = 0.0
        self.failure = store.unreachable
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="audit-recorder", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Records that are not written yet."""
        return len(self._waiting) + self._writing

    def record(self, records: Sequence[AuditRecord]) -> None:
        """Takes records to be written; returns at once, whatever the store does."""
        with self._wake:
            room = max(0, self._max_waiting - self.waiting)
            idle = not self._waiting
            self._waiting.extend(records[:room])
            lost = len(records) - len(records[:room])
            if idle or len(self._waiting) >= _PER_WRITE:  # in between the thread only lets them gather
                self._wake.notify_all()
        self.dropped += lost
        self._tell(lost)

    def flush(self, timeout: float) -> bool:
        """Waits until all that was recorded before is written; False if that takes longer than `timeout` seconds."""
        with self._wake:
            self._flush_asked = True
            self._wake.notify_all()
            return (
                self._wake.wait_for(lambda: self.waiting == 0 or self.failure is not None, timeout) and not self.waiting
            )

    def close(self, timeout: float = 5.0) -> None:
        """Writes what waits and ends the thread; what the store does not take within `timeout` seconds is
        lost, and said."""
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
                self._store.write(batch)
            except StoreError as error:
                if self.failure is None:
                    log.error("%s; %d audit records wait", error, self.waiting)
                self._put_back(batch, str(error))
                if self._closing:
                    return
                with self._wake:
                    self._wake.wait_for(lambda: self._closing, retry)
                retry = min(2 * retry, _LONGEST_RETRY)
                continue
            except Exception:  # a bug; what can never be written must not stop what can
                log.exception("%d audit records cannot be written and are dropped", len(batch))
                self._drop(len(batch))
                continue
            if self.failure is not None:
                log.warning("the audit store can be written again")
            retry = 0.1
            with self._wake:
                self.failure = None
                self._writing = 0
                self._wake.notify_all()
            self._tell(0)
            self._prune()

    def _next_batch(self) -> list[AuditRecord] | None:
        """Waits for records, lets them gather for `flush_seconds`, and takes some; None when closed and
        nothing waits."""
        with self._wake:
            idle = _PRUNE_EVERY if self.failure is None else _LONGEST_RETRY
            self._wake.wait_for(lambda: self._waiting or self._closing, idle)
            if not self._waiting:
                return None if self._closing else []
            self._wake.wait_for(
                lambda: self._flush_asked or self._closing or len(self._waiting) >= _PER_WRITE, self._flush_seconds
            )
            self._flush_asked = self._flush_asked and len(self._waiting) > _PER_WRITE
            batch = [self._waiting.popleft() for _ in range(min(_PER_WRITE, len(self._waiting)))]
            self._writing = len(batch)
            return batch

    def _drop(self, lost: int) -> None:
        with self._wake:
            self._writing = 0
            self._wake.notify_all()
        self.dropped += lost
        self._tell(lost)

    def _tell(self, lost: int) -> None:
        if self._watch is not None:
            self._watch(self.waiting, lost)

    def _put_back(self, batch: Sequence[AuditRecord], failure: str) -> None:
        with self._wake:
            self._waiting.extendleft(reversed(batch))
            self._writing = 0
            self.failure = failure
            self._wake.notify_all()

    def _prune(self) -> None:
        """Prunes when it is time to, or to see whether a database that had failed is back."""
        if self.failure is None and time.monotonic() - self._pruned < _PRUNE_EVERY:
            return
        self._pruned = time.monotonic()
        try:
            self._store.prune()
        except StoreError as error:
            if self.failure is None:
                log.warning("%s", error)
        else:
            self.failure = None
