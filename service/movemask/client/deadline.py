"""`Deadline`: the time for one call of a client."""

from __future__ import annotations

import time


class Deadline(float):
    """A number of seconds, and the moment at which they end.

    It is a float, so that httpx2 takes it for a timeout and hands it to every wait. `DeadlineTransport` waits until the
    moment. Any other transport reads it as the seconds of one wait.
    """

    def __new__(cls, seconds: float) -> Deadline:
        return super().__new__(cls, seconds)

    def __init__(self, seconds: float) -> None:
        self.restart()

    def restart(self) -> None:
        """Begins to count the seconds again."""
        self._end = time.monotonic() + self

    @property
    def left(self) -> float:
        """Seconds until the end; 0 or less after it."""
        return self._end - time.monotonic()
