"""Softmax of the rows of a sparse matrix, with four ways to find the row maximum.

Only explicit elements count, as if the others were -inf. A softmax is stable if each row is shifted by about its
maximum. A library without a segmented maximum can use sums and elementwise powers instead. The service uses `Exact`.
The other methods may give NaN, or rows that do not sum to 1. `sparse_rows` studies when, so nothing is corrected here.

`epsilon` is added to every row sum, in the maximum and in the softmax. The source's code adds SOURCE_EPSILON, which its
text does not mention: a row that underflows then gives 0 instead of 0 / 0.

Source of PNorm and Iterative: Bloem, "Stable softmax for sparse matrices" (2019),
https://peterbloem.nl/blog/stable-softmax; its code: https://github.com/pbloem/blog/tree/master/2019/week27 (`utils.py`,
function `sum`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from movemask.policy.ragged import Index, checked_floats, checked_values, row_max, row_of_each, row_sum

Floating = NDArray[np.floating]

#: The number that the source's code adds to every row sum.
SOURCE_EPSILON = 1e-9


@dataclass(frozen=True)
class Exact:
    """Segment reduction: the maximum itself."""


@dataclass(frozen=True)
class Naive:
    """No shift: 0 for every row."""


@dataclass(frozen=True)
class PNorm:
    """`(sum |x|^p)^(1/p)`: too high, most of all in rows with many or with negative elements."""

    p: float

    def __post_init__(self) -> None:
        _above_one("p", self.p)


@dataclass(frozen=True)
class Iterative:
    """The mean of the elements with weights `h^(p^k) / sum h^(p^k)`, which are near one-hot at the maximum.

    The weights start as `h`, the elements made positive. `k` times, they are raised to the power `p` and divided by the
    row's sum.

    positive : how the elements are made positive: `softplus`, or `shift` by the matrix's minimum. With `shift`, a row
        in which every element is that minimum is 0 / 0.
    normalised : divide by the row's sum before the first power, too. The source's code does so, its text does not.
    """

    p: float
    k: int
    positive: Literal["softplus", "shift"] = "softplus"
    normalised: bool = False

    def __post_init__(self) -> None:
        _above_one("p", self.p)
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise ValueError(f"k: must be an integer of at least 1, got {self.k!r}")


RowMaximum = Exact | Naive | PNorm | Iterative


def row_maximum(
    values: ArrayLike, indptr: ArrayLike, method: RowMaximum, *, epsilon: float = 0.0, inside: DTypeLike = np.float64
) -> Floating:
    """The maximum of each row by `method`: `[N]`, `[B + 1]` → `[B]` of dtype `inside`.

    An empty row gives -inf with Exact. With the other methods it gives 0, or their result for a sum of `epsilon`.
    """
    x, bounds = checked_values("values", values, indptr)
    return _maximum(x.astype(inside), bounds, method, _epsilon(epsilon))


def power_weights(values: ArrayLike, indptr: ArrayLike, power: float) -> Floating:
    """`x^p / Σ x^p` of each row of elements above 0: `[N]`, `[B + 1]` → float64 `[N]`.

    As `p` grows, the weights become one-hot at the maximum, or 1/n for each of n equal maxima. The mean of the elements
    with these weights therefore becomes the maximum, which `Iterative` uses. Raises ValueError for an element of 0 or
    less.
    """
    x, bounds = checked_values("values", values, indptr)
    if not (x > 0).all():
        raise ValueError(f"values: must be above 0, got {x[~(x > 0)][0]}")
    # Divided by the maximum first, so that no power overflows.
    powers = (x / np.repeat(row_max(x, bounds), np.diff(bounds))) ** power
    return np.asarray(powers / np.repeat(row_sum(powers, bounds), np.diff(bounds)))


def sparse_softmax(
    values: ArrayLike,
    indptr: ArrayLike,
    method: RowMaximum | None = None,
    *,
    epsilon: float = 0.0,
    inside: DTypeLike = np.float64,
) -> Floating:
    """Softmax of each row's explicit elements, shifted by the row maximum that `method` finds (Exact if None).

    Parameters
    ----------
    values : float `[N]`; with Exact, a row of only -inf gives NaN
    indptr : int `[B + 1]`; an empty row stays empty
    epsilon : added to every row sum; finite and at least 0
    inside : dtype of all arithmetic; float32 is what GPU libraries use
    """
    x, bounds = checked_values("values", values, indptr)
    narrowed = x.astype(inside)
    rows, added = row_of_each(bounds), _epsilon(epsilon)
    with np.errstate(all="ignore"):
        weights = np.exp(narrowed - _maximum(narrowed, bounds, method or Exact(), added)[rows])
        return weights / _sums(weights, bounds, added)[rows]


def coalesced(
    rows: ArrayLike,
    columns: ArrayLike,
    values: ArrayLike,
    height: int,
    *,
    duplicates: Literal["refuse", "sum"] = "refuse",
) -> tuple[Floating, Index, Index]:
    """CSR from coordinates in any order: values `[N]`, indptr `[height + 1]`, columns `[N]`, rising within each row.

    Two values at the same row and column are added with `sum`; otherwise a ValueError names them.
    """
    i, j, x = np.asarray(rows), np.asarray(columns), checked_floats("values", values, 1)
    for name, index in (("rows", i), ("columns", j)):
        if index.shape != x.shape or (index.size and index.dtype.kind not in "iu"):
            raise ValueError(f"{name}: expected integers of shape {x.shape}, got {index.dtype} of shape {index.shape}")
        if index.size and index.min() < 0:
            raise ValueError(f"{name}: must be at least 0, got {index.min()}")
    if i.size and i.max() >= height:
        raise ValueError(f"rows: must be below height = {height}, got {i.max()}")
    order = np.lexsort((j, i))
    i, j, x = i[order], j[order], x[order]
    first = np.ones(len(x), dtype=bool)
    first[1:] = (i[1:] != i[:-1]) | (j[1:] != j[:-1])
    if not first.all():
        if duplicates == "refuse":
            at = int(np.argmin(first))
            raise ValueError(f"values: two at row {i[at]}, column {j[at]}; ask for duplicates='sum' to add them")
        x = np.add.reduceat(x, np.flatnonzero(first))
        i, j = i[first], j[first]
    indptr = np.zeros(height + 1, dtype=np.intp)
    np.cumsum(np.bincount(i.astype(np.intp), minlength=height), out=indptr[1:])
    return x, indptr, j.astype(np.intp)


def _maximum(x: Floating, indptr: Index, method: RowMaximum, epsilon: float) -> Floating:
    rows = row_of_each(indptr)
    with np.errstate(all="ignore"):
        match method:
            case Naive():
                return np.zeros(len(indptr) - 1, dtype=x.dtype)
            case PNorm(p):
                return np.asarray(_sums(np.abs(x) ** x.dtype.type(p), indptr, epsilon) ** x.dtype.type(1 / p))
            case Iterative(p, k, positive, normalised):
                h = np.logaddexp(x, x.dtype.type(0)) if positive == "softplus" else x - x.min(initial=0)
                if normalised:
                    h = h / _sums(h, indptr, epsilon)[rows]
                for _ in range(k):
                    h = h ** x.dtype.type(p)
                    h = h / _sums(h, indptr, epsilon)[rows]
                return _sums(x * h, indptr, epsilon)
            case Exact():
                return row_max(x, indptr)


def _sums(x: Floating, indptr: Index, epsilon: float) -> Floating:
    return row_sum(x, indptr) + x.dtype.type(epsilon)


def _epsilon(value: float) -> float:
    if not (np.isfinite(value) and value >= 0):
        raise ValueError(f"epsilon: must be finite and at least 0, got {value!r}")
    return value


def _above_one(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 1):
        raise ValueError(f"{name}: must be finite and above 1, got {value!r}")
