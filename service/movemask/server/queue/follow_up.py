"""`FollowUp`: a thread for what is done with finished batches after their replies."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds that batches are gathered for. Followed up together, and written to the ledger in one transaction, they cost
#: less; but an answer should be in the ledger within half a second.
_TOGETHER = 0.4

#: Batches that are followed up at once.
_MANY = 128

#: Most batches that wait. Beyond it, `put` waits, so the network's threads do not outrun the follow-up.
_MOST = 256

#: Seconds until the thread must have ended after `close`.
_CLOSES = 2.0


class FollowUp(Generic[T]):
    """Calls `follow_up` on a thread of its own with the batches given to `put`, many at once."""

    def __init__(self, name: str, follow_up: Callable[[Sequence[T]], None]) -> None:
        self._name, self._follow_up = name, follow_up
        self._changed = threading.Condition()
        self._batches: list[T] = []
        self._running: Sequence[T] = ()
        self._closing = False
        self._joined = 0  # calls of `join` that wait
        self._thread = threading.Thread(target=self._main, name=f"after-{name}", daemon=True)
        self._thread.start()

    def put(self, batch: T) -> None:
        """Hands over a batch, from any thread."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._batches) < _MOST)
            self._batches.append(batch)
            if len(self._batches) in (1, _MANY):
                self._changed.notify_all()

    def join(self) -> None:
        """Waits until everything that was put has been followed up."""
        with self._changed:
            self._joined += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not (self._batches or self._running))
            self._joined -= 1

    @property
    def pending(self) -> Sequence[T]:
        """The batches that have not been followed up."""
        with self._changed:
            return [*self._running, *self._batches]

    def close(self) -> None:
        """Follows up what was put, and ends the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(_CLOSES)

    def _main(self) -> None:
        while batches := self._gathered():
            try:
                self._follow_up(batches)
            except Exception:  # a bug; the answers have been sent, and the thread goes on
                log.exception("work after the answers of model %s failed", self._name)
            del batches  # or they would be kept until the next ones come
            with self._changed:
                self._running = ()
                self._changed.notify_all()

    def _gathered(self) -> Sequence[T]:
        """Waits for batches, then for more. Empty once closed with nothing left."""
        with self._changed:
            self._changed.wait_for(lambda: self._batches or self._closing)
            enough = lambda: len(self._batches) >= _MANY or self._joined or self._closing  # noqa: E731
            self._changed.wait_for(enough, _TOGETHER)
            batches, self._batches = self._batches, []
            self._running = batches
            self._changed.notify_all()
            return batches
