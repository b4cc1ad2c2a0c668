"""`Deadline`: the time that one call of a client may take in all."""

from __future__ import annotations

import time


class Deadline(float):
    """A number of seconds, and the moment at which they will have passed.

    It is a float because it travels through httpx2 as the timeout of each wait. The transports of this package wait
    until the moment; any other transport takes it for the seconds that one wait may last.
    """

    def __new__(cls, seconds: float) -> Deadline:
        return super().__new__(cls, seconds)

    def __init__(self, seconds: float) -> None:
        self.restart()

    def restart(self) -> None:
        """Counts the seconds from now."""
        self._end = time.monotonic() + self

    @property
    def left(self) -> float:
        """Seconds until the moment; 0 or less when it has passed."""
        return self._end - time.monotonic()
