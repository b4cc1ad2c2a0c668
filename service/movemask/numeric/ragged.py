"""Reductions and reshapings over the rows of a ragged (CSR) batch, without a Python loop over rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]
Index = NDArray[np.intp]


def row_lengths(indptr: Index) -> Index:
    """`[B + 1]` → lengths `[B]`."""
    return indptr[1:] - indptr[:-1]


def indptr_of(lengths: Sequence[int]) -> Index:
    """Lengths `[B]` → `[B + 1]`."""
    found = np.zeros(len(lengths) + 1, dtype=np.intp)
    np.cumsum(lengths, out=found[1:])
    return found


def row_of_each(indptr: Index) -> Index:
    """`[B + 1]` → for each of the `N` values, the row it is in."""
    lengths = row_lengths(indptr)
    return np.repeat(np.arange(len(lengths), dtype=np.intp), lengths)


def checked_indptr(indptr: ArrayLike, size: int) -> Index:
    """`indptr` as an index array `[B + 1]`; ValueError unless it rises from 0 to `size`."""
    array = np.asarray(indptr)
    if array.ndim != 1 or len(array) == 0 or array.dtype.kind not in "iu":
        raise ValueError(f"indptr: expected integers [B + 1], got {array.dtype} of shape {array.shape}")
    if array[0] != 0 or array[-1] != size or (len(array) > 2 and (array[1:] < array[:-1]).any()):
        raise ValueError(f"indptr: must rise from 0 to the number of values, {size}; got {array[0]} to {array[-1]}")
    return array.astype(np.intp, copy=False)


def row_max(values: Float, indptr: Index) -> Float:
    """Maximum of each row `[B]`; -inf for an empty row."""
    return _reduce(np.maximum, values, indptr, -np.inf)


def row_sum(values: Float, indptr: Index) -> Float:
    """Sum of each row `[B]`; 0 for an empty row."""
    return _reduce(np.add, values, indptr, 0.0)


def spread(per_row: Float, indptr: Index) -> Float:
    """One number for each row `[B]` → repeated for each of its values `[N]`."""
    if len(indptr) == 2:
        return per_row  # one row: broadcasting does it
    return np.repeat(per_row, row_lengths(indptr))


def padded(values: Float, indptr: Index, fill: float) -> Float:
    """`[N]` → `[B, longest row]`, rows filled up at the end; for what needs a sort. `padded(x)[filled(indptr)] = x`."""
    result = np.full((len(indptr) - 1, int(row_lengths(indptr).max(initial=0))), fill)
    result[filled(indptr)] = values
    return result


def filled(indptr: Index) -> NDArray[np.bool_]:
    """Bool `[B, longest row]`: which places of `padded` hold a value."""
    lengths = row_lengths(indptr)
    return np.arange(lengths.max(initial=0)) < lengths[:, None]


def falling(values: Float, indptr: Index) -> Index:
    """The places `[N]` of the values, each row's largest first, equal ones in the order that they have."""
    if len(indptr) == 2:
        return np.argsort(-values, kind="stable")
    order = np.argsort(padded(-values, indptr, np.inf), axis=1, kind="stable") + indptr[:-1, None]
    return np.asarray(order[filled(indptr)])


def restricted(indptr: Index, keep: NDArray[np.bool_]) -> Index:
    """The indptr of the values that are left where `keep` `[N]` is true."""
    before = np.zeros(len(keep) + 1, dtype=np.intp)
    np.cumsum(keep, out=before[1:])
    return np.asarray(before[indptr])


def _reduce(ufunc: np.ufunc, values: Float, indptr: Index, empty: float) -> Float:
    """`ufunc.reduceat` returns the next row's first value for an empty row, so only the others are handed to it."""
    if len(indptr) == 2 and len(values):  # one row, the service's usual case: without the overhead below
        # `reduceat`, not `reduce`: a sum in another order would make a row's last bit depend on its company.
        return np.asarray(ufunc.reduceat(values, indptr[:1]))
    starts, ends = indptr[:-1], indptr[1:]
    some = starts < ends
    if some.all():
        return np.asarray(ufunc.reduceat(values, starts)) if len(starts) else np.empty(0)
    result = np.full(len(starts), empty)
    if some.any():
        result[some] = ufunc.reduceat(values, starts[some])
    return result
