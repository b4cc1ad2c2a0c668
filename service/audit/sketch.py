"""A mergeable sketch of a distribution on (0, 1]: counts in buckets of equal ratio, so each quantile is within 1 %.

Two sketches merge by adding counts, which is why they can live in a database that several processes write to.

Source: Masson, Rim & Lee, "DDSketch", VLDB 12 (2019), doi:10.14778/3352063.3352135.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

#: A quantile is within this share of a value that stands at its rank.
RELATIVE_ERROR = 0.01

#: Smaller values count as zero; no probability this small changes a decision.
SMALLEST = 1e-15

#: The bucket of values that count as zero.
ZERO_BUCKET = -(2**31)

_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GAMMA = math.log(_GAMMA)


def bucket_of(value: float) -> int:
    """The bucket of a value of at least 0: bucket `i` holds `(gamma^(i-1), gamma^i]`. ValueError for NaN or below 0."""
    if not value >= 0:
        raise ValueError(f"value: must be at least 0, got {value!r}")
    if value < SMALLEST:
        return ZERO_BUCKET
    return math.ceil(math.log(value) / _LOG_GAMMA)


def value_of(bucket: int) -> float:
    """The value that stands for a bucket: within RELATIVE_ERROR of all that it holds."""
    if bucket == ZERO_BUCKET:
        return 0.0
    return 2 * math.pow(_GAMMA, bucket) / (_GAMMA + 1)


def quantile(counts: Mapping[int, int], q: float) -> float | None:
    """The value at rank `q * (n - 1)`, rounded down, of the sketched values; None of none. `q` in 0..1."""
    if not 0 <= q <= 1:
        raise ValueError(f"q: must be in 0..1, got {q!r}")
    total = sum(counts.values())
    if total == 0:
        return None
    rank = math.floor(q * (total - 1))
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen > rank:
            return value_of(bucket)
    raise AssertionError("counts sum to less than their own sum")
