"""`Pace`: how long batches take, learnt from earlier batches; and `Quicker`: which of two sessions is quicker."""

from __future__ import annotations

from collections import deque
from math import inf
from statistics import median

#: Largest cost of large submissions in a batch while small ones are expected, and its longest time in seconds. A small
#: submission waits for two such slices, so a slow network gets smaller slices.
_SLICE, _SLICE_SECONDS = 8, 0.006

#: A batch hangs if it runs longer than this many seconds and longer than 10 times its usual time.
_HANGS_SECONDS, _HANGS_TIMES = 4.0, 10

#: Number of times of each session that are compared.
_TIMES = 9
#: The slower session gets every hundredth run, in case the machine has changed.
_TRIED = 100


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


class Quicker:
    """Which of two sessions of a network runs a lone position more quickly, learnt from their times.

    Whether more threads help depends on the machine: where idle cores wake slowly, a run that waits for a second core
    takes longer than a run on one core (docs/performance.md). Not thread-safe: lone runs do not overlap.
    """

    def __init__(self) -> None:
        self._times: dict[bool, deque[float]] = {which: deque(maxlen=_TIMES) for which in (False, True)}
        self._runs = 0

    def second(self) -> bool:
        """Whether the next run is the second session's: in turns at first, later if the second is quicker."""
        self._runs += 1
        first, second = self._times[False], self._times[True]
        if len(first) < _TIMES or len(second) < _TIMES:
            return len(second) < len(first)
        return (median(second) < median(first)) != (self._runs % _TRIED == 0)

    def observe(self, second: bool, seconds: float) -> None:
        """Learns from a run of the second session or of the first, in seconds per position."""
        self._times[second].append(seconds)
