"""How much faster one session is than another."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from movemask.network.model import Array, Session

BATCH = 32
_WARM, _ROUNDS = 5, 100


@dataclass(frozen=True, slots=True)
class Speed:
    """Median microseconds a position on one thread, in batches of BATCH; `ratio` is the median of the rounds' own."""

    before: float
    after: float
    ratio: float


def speed(original: Session, other: Session, feeds: Mapping[str, Array], outputs: list[str]) -> Speed:
    """The speed of both, which run in turn so that whatever else the machine does slows both alike."""
    times = np.empty((_WARM + _ROUNDS, 2))
    for row in times:
        for place, session in enumerate((original, other)):
            started = time.perf_counter()
            session.run(feeds, outputs)
            row[place] = time.perf_counter() - started
    kept = times[_WARM:]
    before, after = np.median(kept, axis=0) / len(next(iter(feeds.values()))) * 1e6
    return Speed(float(before), float(after), float(np.median(kept[:, 0] / kept[:, 1])))
