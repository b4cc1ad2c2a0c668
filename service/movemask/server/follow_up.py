"""`FollowUp`: a thread for what is done with finished batches after their replies."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Batches of this many seconds are followed up together, which costs less.
_TOGETHER = 0.05

#: Most batches that wait. Beyond it, `put` waits, so the network's threads do not outrun the follow-up.
_MOST = 256

#: Seconds until the thread must have ended after `close`.
_CLOSES = 2.0


class FollowUp(Generic[T]):
    """Calls `follow_up` on a thread of its own with the batches given to `put`, many at once."""

    def __init__(self, name: str, follow_up: Callable[[Sequence[T]], None]) -> None:
        self._name, self._follow_up = name, follow_up
        self._batches: queue.Queue[T | None] = queue.Queue(_MOST)  # None: the end
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"after-{name}", daemon=True)
        self._thread.start()

    def put(self, batch: T) -> None:
        """Hands over a batch, from any thread."""
        self._batches.put(batch)

    def join(self) -> None:
        """Waits until everything that was put has been followed up."""
        self._batches.join()

    def close(self) -> None:
        """Follows up what was put, and ends the thread."""
        self._closing.set()
        with suppress(queue.Full):
            self._batches.put(None, timeout=_CLOSES)
            self._thread.join(_CLOSES)

    def _main(self) -> None:
        while self._gather():
            pass

    def _gather(self) -> bool:
        """Waits for batches and follows them up. False at the end. Keeps no batch alive after its return."""
        batches = [self._batches.get()]
        self._closing.wait(_TOGETHER)
        while not self._batches.empty():
            batches.append(self._batches.get())
        done = [batch for batch in batches if batch is not None]
        try:
            if done:
                self._follow_up(done)
        except Exception:  # a bug; the answers have been sent, and the thread goes on
            log.exception("work after the answers of model %s failed", self._name)
        for _ in batches:
            self._batches.task_done()
        return len(done) == len(batches)
