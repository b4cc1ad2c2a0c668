"""Ragged (CSR) batches: reductions and conversions without a Python loop over rows, and checks of arguments.

A check raises ValueError, which names the argument and its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]
Index = NDArray[np.intp]
F = TypeVar("F", bound=np.floating)


def row_lengths(indptr: Index) -> Index:
    """Returns the lengths of the rows: `[B + 1]` → `[B]`."""
    return indptr[1:] - indptr[:-1]


def indptr_of(lengths: Sequence[int] | Index) -> Index:
    """Returns the indptr of rows of these lengths: `[B]` → `[B + 1]`."""
    indptr = np.zeros(len(lengths) + 1, dtype=np.intp)
    np.cumsum(lengths, out=indptr[1:])
    return indptr


def joined_indptr(indptrs: Sequence[Index]) -> Index:
    """Returns the indptr of concatenated batches."""
    return indptr_of(np.concatenate([row_lengths(indptr) for indptr in indptrs]))


def row_of_each(indptr: Index) -> Index:
    """Returns the row of each value: `[B + 1]` → `[N]`."""
    lengths = row_lengths(indptr)
    return np.repeat(np.arange(len(lengths), dtype=np.intp), lengths)


def checked_indptr(indptr: ArrayLike, size: int) -> Index:
    """Returns `indptr` as an index array `[B + 1]`.

    Raises ValueError unless it rises from 0 to `size`.
    """
    array = np.asarray(indptr)
    if array.ndim != 1 or len(array) == 0 or array.dtype.kind not in "iu":
        raise ValueError(
            f"indptr: expected integers [B + 1], got {array.dtype} of shape {array.shape}"
        )
    if array[0] != 0 or array[-1] != size or (len(array) > 2 and (array[1:] < array[:-1]).any()):
        raise ValueError(
            f"indptr: must rise from 0 to the number of values, {size}; got {array[0]} to {array[-1]}"
        )
    return array.astype(np.intp, copy=False)


def row_max(values: NDArray[F], indptr: Index) -> NDArray[F]:
    """Returns the maximum of each row `[B]`, in the dtype of the values; -inf for an empty row."""
    return _reduce(np.maximum, values, indptr, -np.inf)


def row_sum(values: NDArray[F], indptr: Index) -> NDArray[F]:
    """Returns the sum of each row `[B]`, in the dtype of the values; 0 for an empty row."""
    return _reduce(np.add, values, indptr, 0.0)


def spread(per_row: Float, indptr: Index) -> Float:
    """Returns each row's number, repeated for all values of the row: `[B]` → `[N]`.

    `[1]` stays, because it broadcasts.
    """
    if len(indptr) == 2:
        return per_row
    return np.repeat(per_row, row_lengths(indptr))


def padded(values: Float, indptr: Index, fill: float) -> Float:
    """Returns rows padded at the end, for sorting: `[N]` → `[B, longest row]`.

    `padded(x, …)[filled(indptr)]` is `x`.
    """
    result = np.full((len(indptr) - 1, int(row_lengths(indptr).max(initial=0))), fill)
    result[filled(indptr)] = values
    return result


def filled(indptr: Index) -> NDArray[np.bool_]:
    """Returns which entries of `padded` hold a value: bool `[B, longest row]`."""
    lengths = row_lengths(indptr)
    return np.arange(lengths.max(initial=0)) < lengths[:, None]


def falling(values: Float, indptr: Index) -> Index:
    """Returns the order that sorts each row descending, as indices `[N]`.

    Equal values keep their order.
    """
    if len(indptr) == 2:
        return np.argsort(-values, kind="stable")
    order = np.argsort(padded(-values, indptr, np.inf), axis=1, kind="stable") + indptr[:-1, None]
    return np.asarray(order[filled(indptr)])


def restricted(indptr: Index, keep: NDArray[np.bool_]) -> Index:
    """Returns the indptr after values are dropped.

    `keep`, bool `[N]`, marks the values that stay.
    """
    kept_before = np.zeros(len(keep) + 1, dtype=np.intp)
    np.cumsum(keep, out=kept_before[1:])
    return np.asarray(kept_before[indptr])


def _reduce(ufunc: np.ufunc, values: NDArray[F], indptr: Index, empty: float) -> NDArray[F]:
    """Returns each row reduced by a ufunc.

    An empty row gives `empty`; `reduceat` would give the next row's value.
    """
    if len(indptr) == 2 and len(values):  # one row, without the overhead below
        # `reduceat`, as below: `reduce` sums in another order, so a row's last bit would depend on the other rows.
        return np.asarray(ufunc.reduceat(values, indptr[:1]))
    starts, ends = indptr[:-1], indptr[1:]
    filled_rows = starts < ends
    if filled_rows.all():
        return (
            np.asarray(ufunc.reduceat(values, starts)) if len(starts) else np.empty(0, values.dtype)
        )
    result = np.full(len(starts), empty, values.dtype)
    if filled_rows.any():
        result[filled_rows] = ufunc.reduceat(values, starts[filled_rows])
    return result


Floating = NDArray[np.floating]


def checked_floats(name: str, values: ArrayLike, dimensions: int) -> Floating:
    """Returns `values` as a float array of 1 or 2 dimensions."""
    array = np.asarray(values)
    if array.ndim != dimensions or array.dtype.kind != "f":
        shape = "[B, A]" if dimensions == 2 else "[N]"
        raise ValueError(
            f"{name}: expected floats {shape}, got {array.dtype} of shape {array.shape}"
        )
    return array


def checked_values(name: str, values: ArrayLike, indptr: ArrayLike) -> tuple[Float, Index]:
    """Returns values `[N]` converted to float64, and their indptr `[B + 1]`."""
    array = checked_floats(name, values, 1)
    return array.astype(np.float64, copy=False), checked_indptr(indptr, array.size)


def checked_probabilities(values: ArrayLike, indptr: ArrayLike) -> tuple[Float, Index]:
    """Returns the probabilities `[N]` in float64 and their indptr.

    Raises ValueError unless all are finite and at least 0.
    """
    array, bounds = checked_values("probabilities", values, indptr)
    if array.size and not (array.min() >= 0 and array.max() < np.inf):
        at = int(np.argmin((array >= 0) & (array < np.inf)))
        raise ValueError(f"probabilities: must be finite and at least 0, got {array[at]} at {at}")
    return array, bounds


def checked_logits(
    values: ArrayLike, indptr: ArrayLike, *, all_low: bool = False
) -> tuple[Float, Index, Float]:
    """Returns the legal logits `[N]` in float64, their indptr, and each row's maximum `[B]`.

    The maximum of an empty row is -inf.

    Raises ValueError for NaN, +inf and, unless `all_low`, a row of only -inf.
    """
    array, bounds = checked_values("legal_logits", values, indptr)
    top = row_max(array, bounds)
    # A NaN, a +inf or a row of only -inf makes the row's maximum non-finite.
    if not (math.isfinite(top[0]) if len(top) == 1 else np.isfinite(top).all()):
        wrong = np.isnan(top) | (top == np.inf)
        if not all_low:
            wrong |= (top == -np.inf) & (row_lengths(bounds) > 0)
        if wrong.any():
            row = int(np.argmax(wrong))
            what = "-inf alone" if top[row] == -np.inf else str(top[row])
            raise ValueError(f"legal_logits: row {row} holds {what}")
    return array, bounds, top


def checked_temperature(value: ArrayLike, rows: int) -> Float | float:
    """Returns a temperature for the batch, or one per row `[B]`, finite and above 0.

    Raises ValueError for other numbers.
    """
    if (
        isinstance(value, float) and 0.0 < value < np.inf
    ):  # the common case, without numpy's overhead
        return value
    return checked_per_row(
        "temperature",
        value,
        rows,
        lambda array: np.isfinite(array) & (array > 0),
        "finite and above 0",
    )


def checked_per_row(
    name: str,
    value: ArrayLike,
    rows: int,
    allowed: Callable[[Float], NDArray[np.bool_]],
    requirement: str,
) -> Float:
    """Returns a number for the batch or for each row, as `[B]`.

    Raises ValueError unless `allowed` holds for each number.
    """
    array = np.asarray(value, dtype=np.float64)
    if array.ndim > 1 or (array.ndim == 1 and len(array) != rows):
        raise ValueError(f"{name}: expected a number or [B] = [{rows}], got shape {array.shape}")
    if not np.all(allowed(array)):
        raise ValueError(f"{name}: must be {requirement}, got {value!r}")
    return np.broadcast_to(array, (rows,))


def checked_alpha(value: ArrayLike, rows: int) -> Float:
    """Returns the α of entmax for the batch or for each row, as `[B]`: finite and at least 1."""
    return checked_per_row(
        "alpha", value, rows, lambda a: np.isfinite(a) & (a >= 1), "finite and at least 1"
    )


def checked_share(name: str, value: ArrayLike, rows: int) -> Float:
    """Returns a number in (0, 1] for the batch or for each row, as `[B]`."""
    return checked_per_row(
        name, value, rows, lambda array: (array > 0) & (array <= 1), "above 0 and at most 1"
    )
