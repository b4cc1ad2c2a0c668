"""The legal logits of a dense batch in ragged form, by a mask or by slots."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.errors import InvalidLogits
from movemask.numeric import checks
from movemask.numeric.ragged import Float, Index, checked_indptr, row_max, row_of_each


def gather_legal(logits: ArrayLike, slots: ArrayLike, indptr: ArrayLike) -> tuple[Float, Index]:
    """The legal logits of a batch. No other logit is read, so none can reach a policy.

    Parameters
    ----------
    logits : float `[B, A]`, any float dtype
    slots : int `[N]`, the legal slots, row after row
    indptr : int `[B + 1]`

    Returns
    -------
    legal logits float64 `[N]`, and `indptr` checked

    Raises
    ------
    ValueError : a shape that does not fit, or a slot outside the vocabulary
    InvalidLogits : a legal logit that is NaN or +inf, its row and slot named; or a row with none above -inf
    """
    array = checks.floats("logits", logits, 2)
    index = np.asarray(slots)
    if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
        raise ValueError(f"slots: expected integers [N], got {index.dtype} of shape {index.shape}")
    bounds = checked_indptr(indptr, index.size)
    rows, size = array.shape
    if len(bounds) - 1 != rows:
        raise ValueError(f"indptr: {len(bounds) - 1} rows, but logits have {rows}")
    if not index.size:
        return np.empty(0), bounds
    if index.min() < 0 or index.max() >= size:
        raise ValueError(f"slots: must be in 0..{size - 1}, got {index.min()}..{index.max()}")
    picked = array[0][index] if rows == 1 else array[row_of_each(bounds), index]
    values = picked.astype(np.float64)
    # A NaN, a +inf and a row of only -inf all show in the row's maximum.
    top = row_max(values, bounds)
    if not (math.isfinite(top[0]) if rows == 1 else np.isfinite(top[bounds[:-1] < bounds[1:]]).all()):
        _refuse(values, index, bounds)
    return values, bounds


def ragged_of_mask(legal_mask: NDArray[np.bool_]) -> tuple[Index, Index]:
    """legal_mask bool `[B, A]` → legal slots `[N]`, rising within each row, and indptr `[B + 1]`."""
    rows, size = legal_mask.shape
    # np.flatnonzero is about six times as fast as np.nonzero of two dimensions.
    flat = np.flatnonzero(legal_mask)
    indptr = np.searchsorted(flat, np.arange(rows + 1) * size).astype(np.intp, copy=False)
    return flat - row_of_each(indptr) * size, indptr


def _refuse(values: Float, slots: NDArray[np.integer], indptr: Index) -> None:
    rows = row_of_each(indptr)
    unusable = np.isnan(values) | (values == np.inf)
    if unusable.any():
        first = int(np.argmax(unusable))
        raise InvalidLogits(f"row {rows[first]}, slot {slots[first]}: the logit of a legal move is {values[first]}")
    all_low = (indptr[:-1] < indptr[1:]) & (row_max(values, indptr) == -np.inf)
    raise InvalidLogits(f"row {int(np.argmax(all_low))}: the logit of every legal move is -inf")
