"""Reductions over the rows of a ragged (CSR) batch, without a Python loop over rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]
Index = NDArray[np.intp]


def row_lengths(indptr: Index) -> Index:
    """`[B + 1]` → lengths `[B]`."""
    return np.diff(indptr)


def row_of_each(indptr: Index) -> Index:
    """`[B + 1]` → for each of the `N` values, the row it is in."""
    lengths = row_lengths(indptr)
    return np.repeat(np.arange(len(lengths), dtype=np.intp), lengths)


def checked_indptr(indptr: ArrayLike, size: int) -> Index:
    """`indptr` as an index array `[B + 1]`; ValueError unless it rises from 0 to `size`."""
    array = np.asarray(indptr)
    if array.ndim != 1 or len(array) == 0 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"indptr: expected integers [B + 1], got {array.dtype} of shape {array.shape}")
    if array[0] != 0 or array[-1] != size or np.any(np.diff(array) < 0):
        raise ValueError(f"indptr: must rise from 0 to the number of values, {size}; got {array[0]} to {array[-1]}")
    return array.astype(np.intp, copy=False)


def row_max(values: Float, indptr: Index) -> Float:
    """Maximum of each row `[B]`; -inf for an empty row."""
    return _reduce(np.maximum, values, indptr, -np.inf)


def row_sum(values: Float, indptr: Index) -> Float:
    """Sum of each row `[B]`; 0 for an empty row."""
    return _reduce(np.add, values, indptr, 0.0)


def _reduce(ufunc: np.ufunc, values: Float, indptr: Index, empty: float) -> Float:
    """`ufunc.reduceat` returns the next row's first value for an empty row, so only the others are handed to it."""
    result = np.full(len(indptr) - 1, empty)
    filled = row_lengths(indptr) > 0
    if filled.any():
        result[filled] = ufunc.reduceat(values, indptr[:-1][filled])
    return result
