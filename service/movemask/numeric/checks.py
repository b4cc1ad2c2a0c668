"""Argument checks of all kernels: each raises a ValueError that names the argument and its value."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.numeric.ragged import Float, Index, checked_indptr, row_lengths, row_max

Floating = NDArray[np.floating]


def floats(name: str, values: ArrayLike, dimensions: int) -> Floating:
    """`values` as a float array with this number of dimensions."""
    array = np.asarray(values)
    if array.ndim != dimensions or array.dtype.kind != "f":
        shape = "[B, A]" if dimensions == 2 else "[N]"
        raise ValueError(f"{name}: expected floats {shape}, got {array.dtype} of shape {array.shape}")
    return array


def ragged(name: str, values: ArrayLike, indptr: ArrayLike) -> tuple[Float, Index]:
    """Values `[N]` converted to float64, and their indptr `[B + 1]`."""
    array = floats(name, values, 1)
    return array.astype(np.float64, copy=False), checked_indptr(indptr, array.size)


def probabilities(values: ArrayLike, indptr: ArrayLike) -> tuple[Float, Index]:
    """Probabilities `[N]` in float64 and their indptr; ValueError unless each is finite and at least 0."""
    array, bounds = ragged("probabilities", values, indptr)
    if array.size and not (array.min() >= 0 and array.max() < np.inf):
        at = int(np.argmin((array >= 0) & (array < np.inf)))
        raise ValueError(f"probabilities: must be finite and at least 0, got {array[at]} at {at}")
    return array, bounds


def vectors(values: ArrayLike, like: Float) -> Float:
    """Vectors `[N]` in float64 that a Jacobian is multiplied with; of the shape of `like`."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != like.shape:
        raise ValueError(f"vectors: expected shape {like.shape}, got {array.shape}")
    return array


def logits(values: ArrayLike, indptr: ArrayLike, *, all_low: bool = False) -> tuple[Float, Index, Float]:
    """Legal logits `[N]` in float64, their indptr, and the maximum of each row `[B]` (-inf if it is empty).

    ValueError for NaN, +inf and, unless `all_low`, a row of nothing but -inf.
    """
    array, bounds = ragged("legal_logits", values, indptr)
    top = row_max(array, bounds)
    if not (math.isfinite(top[0]) if len(top) == 1 else np.isfinite(top).all()):  # all three show in the maximum
        wrong = np.isnan(top) | (top == np.inf)
        if not all_low:
            wrong |= (top == -np.inf) & (row_lengths(bounds) > 0)
        if wrong.any():
            row = int(np.argmax(wrong))
            what = "-inf alone" if top[row] == -np.inf else str(top[row])
            raise ValueError(f"legal_logits: row {row} holds {what}")
    return array, bounds, top


def legal_mask(mask: ArrayLike, logits: ArrayLike) -> NDArray[np.bool_]:
    """A legal mask, bool `[B, A]`, of the shape of the logits."""
    array = np.asarray(mask)
    if array.dtype != np.bool_ or array.ndim != 2:
        raise ValueError(f"legal_mask: expected bool [B, A], got {array.dtype} of shape {array.shape}")
    if array.shape != np.shape(logits):
        raise ValueError(f"legal_mask: shape {array.shape}, but logits have {np.shape(logits)}")
    return array


def temperature(value: ArrayLike, rows: int) -> Float | float:
    """A temperature for the batch, or for each row `[B]`: finite and above 0."""
    if isinstance(value, float) and 0.0 < value < np.inf:  # the common case, without numpy's overhead
        return value
    return per_row("temperature", value, rows, lambda array: np.isfinite(array) & (array > 0), "finite and above 0")


def per_row(
    name: str, value: ArrayLike, rows: int, allowed: Callable[[Float], NDArray[np.bool_]], requirement: str
) -> Float:
    """A number for the batch or for each row, as `[B]`; `allowed` says elementwise which values are valid."""
    array = np.asarray(value, dtype=np.float64)
    if array.ndim > 1 or (array.ndim == 1 and len(array) != rows):
        raise ValueError(f"{name}: expected a number or [B] = [{rows}], got shape {array.shape}")
    if not np.all(allowed(array)):
        raise ValueError(f"{name}: must be {requirement}, got {value!r}")
    return np.broadcast_to(array, (rows,))


def share(name: str, value: ArrayLike, rows: int) -> Float:
    """A number in (0, 1] for the batch or for each row, as `[B]`."""
    return per_row(name, value, rows, lambda array: (array > 0) & (array <= 1), "above 0 and at most 1")


def result(values: Floating, like: ArrayLike, keep_dtype: bool) -> NDArray[np.floating]:
    """The result in float64, or with `keep_dtype` rounded to the dtype of the input."""
    return values.astype(np.asarray(like).dtype) if keep_dtype else values
