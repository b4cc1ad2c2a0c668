"""A mergeable sketch of a distribution on [0, 1]: counts in buckets of equal ratio. A quantile is at most 2 % above
the value at its rank, and never below it.

Sketches merge by adding counts, so the result does not depend on order or grouping.

Source: Masson, Rim & Lee, "DDSketch", VLDB 12 (2019), doi:10.14778/3352063.3352135.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.numeric.ragged import row_of_each

#: A bucket's representative is within this share of every value in it.
RELATIVE_ERROR = 0.01

#: Values below this count as zero; no probability so small changes a decision.
SMALLEST = 1e-15

_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GAMMA = math.log(_GAMMA)
_ROUNDING = 1 + 1e-12  # the error of the logarithm may leave a value just outside its bucket's bounds
_ZERO_BUCKET = -(2**15)
_WIDTHS = ("<u1", "<u2", "<u4", "<i8")  # dtypes of counts, indexed by the first byte of a serialised sketch
_SIZES = (1, 2, 4, 8)
_HEAD = struct.Struct("<BH")


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """Counts of values: `buckets` int16 `[K]`, ascending, and `counts` int64 `[K]`.

    Bucket `i` holds `(gamma^(i-1), gamma^i]`; the lowest possible bucket holds values below SMALLEST.
    """

    buckets: NDArray[np.int16]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, values: ArrayLike) -> Sketch:
        """The sketch of values `[N]`; ValueError for NaN, infinity or a value below 0."""
        array = np.asarray(values, dtype=np.float64)
        return sketches_of(array, np.array([0, array.size], dtype=np.intp))[0]

    @classmethod
    def merged(cls, sketches: Iterable[Sketch]) -> Sketch:
        """The sketch of the values of all these."""
        return merged_sketches([list(sketches)])[0]

    @property
    def total(self) -> int:
        """The number of values."""
        return int(self.counts.sum())

    def quantile(self, q: float) -> float | None:
        """The upper bound of the bucket that holds the value at `rank_of(q)`, `q` in 0..1; None for an empty sketch.

        Never below that value, so that the sketch's error can fail a check against a threshold but not pass it.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"q: must be in 0..1, got {q!r}")
        total = self.total
        if total == 0:
            return None
        _, high = self.around(rank_of(q, total))
        return 0.0 if high == SMALLEST else high

    def around(self, rank: int) -> tuple[float, float]:
        """Lower and upper bound of the value at a rank (from 1)."""
        bucket = int(self.buckets[np.searchsorted(np.cumsum(self.counts), rank)])
        if bucket == _ZERO_BUCKET:
            return 0.0, SMALLEST
        return math.pow(_GAMMA, bucket - 1) / _ROUNDING, math.pow(_GAMMA, bucket) * _ROUNDING

    def histogram(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Each bucket's representative value and count, both `[K]`; for plots."""
        return np.array([_value_of(int(bucket)) for bucket in self.buckets]), self.counts

    def to_bytes(self) -> bytes:
        """Serialised for the database: width of a count, number of buckets, buckets, counts; little-endian."""
        largest = int(self.counts.max(initial=0))
        width = next(i for i, dtype in enumerate(_WIDTHS) if largest <= np.iinfo(dtype).max)
        head = _HEAD.pack(width, len(self.buckets))
        return head + self.buckets.astype("<i2").tobytes() + self.counts.astype(_WIDTHS[width]).tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Sketch:
        """The sketch serialised by `to_bytes`; ValueError for anything else."""
        width, size = _head(data)
        buckets = np.frombuffer(data, "<i2", size, _HEAD.size).astype(np.int16)
        counts = np.frombuffer(data, _WIDTHS[width], size, _HEAD.size + 2 * size).astype(np.int64)
        return cls(buckets, counts)


def sketches_of(values: NDArray[np.float64], indptr: NDArray[np.intp]) -> list[Sketch]:
    """The sketch of each row of values `[N]`, `indptr` `[S + 1]`; ValueError for NaN, infinity or a value below 0."""
    if not ((values >= 0) & (values < np.inf)).all():
        raise ValueError("values: must be finite and at least 0")
    zero = values < SMALLEST
    logs = np.log(np.where(zero, 1.0, values)) / _LOG_GAMMA
    buckets = np.where(zero, _ZERO_BUCKET, np.ceil(logs).clip(_ZERO_BUCKET + 1, 2**15 - 1)).astype(np.intp)
    return _split(row_of_each(indptr), buckets, None, len(indptr) - 1)


def merged_sketches(groups: Sequence[Sequence[Sketch]]) -> list[Sketch]:
    """The merged sketch of each group, all at once."""
    parts = [part for group in groups for part in group]
    if not parts:
        return [Sketch.of([]) for _ in groups]
    owners = np.repeat(
        [place for place, group in enumerate(groups) for _ in group], [len(part.buckets) for part in parts]
    )
    buckets = np.concatenate([part.buckets for part in parts]).astype(np.intp)
    return _split(owners, buckets, np.concatenate([part.counts for part in parts]), len(groups))


def _split(
    owners: NDArray[np.intp], buckets: NDArray[np.intp], counts: NDArray[np.int64] | None, size: int
) -> list[Sketch]:
    """`size` sketches from buckets `[K]`, each of the sketch `owners` `[K]`, in any order, with duplicates; without
    `counts`, 1 each."""
    packed = owners << 16 | (buckets - _ZERO_BUCKET)
    if counts is None:
        packed = np.sort(packed)
    else:
        order = np.argsort(packed, kind="stable")
        packed, counts = packed[order], counts[order]
    starts = np.flatnonzero(np.concatenate([[True], packed[1:] != packed[:-1]])) if len(packed) else packed
    if counts is None:
        summed = np.diff(starts, append=len(packed)).astype(np.int64, copy=False)
    else:
        summed = np.add.reduceat(counts, starts) if len(starts) else counts
    distinct = packed[starts]
    bounds = np.searchsorted(distinct, np.arange(size + 1) << 16).tolist()
    kept = ((distinct & 0xFFFF) + _ZERO_BUCKET).astype(np.int16)
    return [Sketch(kept[start:end], summed[start:end]) for start, end in pairwise(bounds)]


def rank_of(q: float, total: int) -> int:
    """The rank, from 1, of the `q` quantile among `total` sorted values: nearest rank, rounded up."""
    return max(1, math.ceil(Fraction(str(q)) * total))  # exact: 0.07 * 100 is more than 7 in floats


def _head(data: bytes) -> tuple[int, int]:
    """Width of a count and number of buckets; ValueError if the length does not match them."""
    if len(data) < _HEAD.size:
        raise ValueError("a sketch that is cut short")
    width, size = _HEAD.unpack_from(data)
    if width >= len(_WIDTHS) or len(data) != _HEAD.size + size * (2 + _SIZES[width]):
        raise ValueError("bytes that are no sketch")
    return width, size


def _value_of(bucket: int) -> float:
    """A bucket's representative: within RELATIVE_ERROR of every value in it."""
    return 0.0 if bucket == _ZERO_BUCKET else 2 * math.pow(_GAMMA, bucket) / (_GAMMA + 1)
