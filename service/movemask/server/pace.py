"""`Pace`: how long batches take, learnt from earlier batches."""

from __future__ import annotations

from math import inf

#: Largest cost of large submissions in a batch while small ones are expected, and its longest time in seconds. A small
#: submission waits for two such slices, so a slow network gets smaller slices.
_SLICE, _SLICE_SECONDS = 8, 0.006

#: A batch hangs if it runs longer than this many seconds and longer than 10 times its usual time.
_HANGS_SECONDS, _HANGS_TIMES = 4.0, 10


class Pace:
    """A network's seconds per unit of cost. Not thread-safe.

    slice : largest cost of large submissions in a batch, from 1 to 8
    """

    def __init__(self) -> None:
        self.slice = float(_SLICE)
        self._seconds_per_cost = 0.0  # moving average; 0 before the first batch
        self._seconds_per_cost_alone = inf  # of the last small submission in a batch of its own

    def observe(self, cost: float, seconds: float, *, share: float, alone: bool) -> None:
        """Learns from a batch.

        share : the batch's cost over the largest batch's. Items of a small batch take longer, so it weighs less.
        alone : whether the batch was one small submission
        """
        per_cost = seconds / cost
        weight = min(0.5, share) if self._seconds_per_cost else 1.0
        self._seconds_per_cost += weight * (per_cost - self._seconds_per_cost)
        self.slice = max(1.0, min(_SLICE, _SLICE_SECONDS / self._seconds_per_cost))
        if alone:
            self._seconds_per_cost_alone = per_cost

    def seconds(self, cost: float) -> float:
        """Expected seconds for items of this total cost, batch after batch; 0 before the first batch."""
        return cost * self._seconds_per_cost

    def seconds_alone(self, cost: float) -> float:
        """Time of a small submission in a batch of its own; infinite before the first."""
        return cost * self._seconds_per_cost_alone

    def hangs(self, cost: float, seconds: float) -> bool:
        """Whether a batch that has run for `seconds` probably never returns."""
        return seconds > max(_HANGS_SECONDS, _HANGS_TIMES * self.seconds(cost))
