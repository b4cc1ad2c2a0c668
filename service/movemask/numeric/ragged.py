"""Reductions and conversions of ragged (CSR) batches, without a Python loop over rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]
Index = NDArray[np.intp]


def row_lengths(indptr: Index) -> Index:
    """The lengths of the rows: `[B + 1]` → `[B]`."""
    return indptr[1:] - indptr[:-1]


def indptr_of(lengths: Sequence[int] | Index) -> Index:
    """The indptr of rows of these lengths: `[B]` → `[B + 1]`."""
    indptr = np.zeros(len(lengths) + 1, dtype=np.intp)
    np.cumsum(lengths, out=indptr[1:])
    return indptr


def joined_indptr(parts: Sequence[Index]) -> Index:
    """The indptr of the rows of all parts."""
    return indptr_of(np.concatenate([row_lengths(part) for part in parts]))


def row_of_each(indptr: Index) -> Index:
    """The row of each value: `[B + 1]` → `[N]`."""
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
    """Each row's number repeated for all its values: `[B]` → `[N]`; `[1]` stays, since it broadcasts."""
    if len(indptr) == 2:
        return per_row
    return np.repeat(per_row, row_lengths(indptr))


def padded(values: Float, indptr: Index, fill: float) -> Float:
    """Rows padded at the end, for sorting: `[N]` → `[B, longest row]`. `padded(x, …)[filled(indptr)]` is `x`."""
    result = np.full((len(indptr) - 1, int(row_lengths(indptr).max(initial=0))), fill)
    result[filled(indptr)] = values
    return result


def filled(indptr: Index) -> NDArray[np.bool_]:
    """Which entries of `padded` hold a value: bool `[B, longest row]`."""
    lengths = row_lengths(indptr)
    return np.arange(lengths.max(initial=0)) < lengths[:, None]


def falling(values: Float, indptr: Index) -> Index:
    """The order that sorts each row descending, as indices `[N]`; equal values keep their order."""
    if len(indptr) == 2:
        return np.argsort(-values, kind="stable")
    order = np.argsort(padded(-values, indptr, np.inf), axis=1, kind="stable") + indptr[:-1, None]
    return np.asarray(order[filled(indptr)])


def restricted(indptr: Index, keep: NDArray[np.bool_]) -> Index:
    """The indptr of what is left when only the values where `keep` bool `[N]` is true are kept."""
    kept_before = np.zeros(len(keep) + 1, dtype=np.intp)
    np.cumsum(keep, out=kept_before[1:])
    return np.asarray(kept_before[indptr])


def _reduce(ufunc: np.ufunc, values: Float, indptr: Index, empty: float) -> Float:
    """Each row reduced; `empty` for an empty row, where `ufunc.reduceat` would give the next row's first value."""
    if len(indptr) == 2 and len(values):  # a lone row, without the overhead below
        # `reduceat`, not `reduce`: a sum in another order would make a row's last bit depend on the other rows.
        return np.asarray(ufunc.reduceat(values, indptr[:1]))
    starts, ends = indptr[:-1], indptr[1:]
    filled_rows = starts < ends
    if filled_rows.all():
        return np.asarray(ufunc.reduceat(values, starts)) if len(starts) else np.empty(0)
    result = np.full(len(starts), empty)
    if filled_rows.any():
        result[filled_rows] = ufunc.reduceat(values, starts[filled_rows])
    return result
