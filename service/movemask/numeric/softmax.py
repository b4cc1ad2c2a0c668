"""The legal logits of a batch, and softmax and its variants over the rows of a ragged batch of them.

The policy is computed from the legal logits alone (`pipeline.evaluate` gathers them, `gather_legal` for other callers),
so nothing in an illegal slot can reach it. The
definition is a plain softmax after adding `log(mask)` to the logits (`masking.log_mask_softmax`); gathering first gives
the same numbers without `inf - inf`, and does not read illegal logits. The dense `[B, A]` forms are in `dense`.

Source: the shifted log-sum-exp of Blanchard, Higham & Higham, "Accurately computing the log-sum-exp and softmax
functions", IMA J. Numer. Anal. 41 (2021), doi:10.1093/imanum/draa038.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.errors import InvalidLogits
from movemask.numeric.ragged import (
    Float,
    Index,
    checked_floats,
    checked_indptr,
    checked_logits,
    checked_temperature,
    in_dtype,
    row_max,
    row_of_each,
    row_sum,
    spread,
)


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
    array = checked_floats("logits", logits, 2)
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


def softmax(
    legal_logits: ArrayLike, indptr: ArrayLike, temperature: ArrayLike = 1.0, *, keep_dtype: bool = False
) -> NDArray[Any]:
    """Probabilities of each row of a ragged batch.

    Parameters
    ----------
    legal_logits : float `[N]`, below +inf, as `gather_legal` returns them; no row of only -inf
    indptr : int `[B + 1]`
    temperature : float, or float `[B]`; finite and above 0
    keep_dtype : round the result to the dtype of the logits; arithmetic is in float64 either way

    Returns
    -------
    float64 `[N]`; each row sums to 1 within 1e-12 (before any rounding), an empty row stays empty

    Raises
    ------
    ValueError : shapes that do not fit, an invalid temperature, a row with NaN or +inf or of only -inf
    """
    values, bounds, top = checked_logits(legal_logits, indptr)
    weights = np.exp(shifted(values, bounds, top, checked_temperature(temperature, len(bounds) - 1)))
    return in_dtype(weights / spread(row_sum(weights, bounds), bounds), legal_logits, keep_dtype)


def log_softmax(
    legal_logits: ArrayLike, indptr: ArrayLike, temperature: ArrayLike = 1.0, *, keep_dtype: bool = False
) -> NDArray[Any]:
    """Log-probabilities, finite where the probability itself underflows; arguments as in `softmax`."""
    values, bounds, top = checked_logits(legal_logits, indptr)
    below = shifted(values, bounds, top, checked_temperature(temperature, len(bounds) - 1))
    with np.errstate(divide="ignore"):
        log_total = np.log(row_sum(np.exp(below), bounds))
    return in_dtype(below - spread(log_total, bounds), legal_logits, keep_dtype)


def logsumexp(values: ArrayLike, indptr: ArrayLike) -> Float:
    """`log(sum(exp(row)))` of each row `[B]`; -inf for an empty row or one of only -inf."""
    array, bounds, top = checked_logits(values, indptr, all_low=True)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        return np.asarray(shift + np.log(row_sum(np.exp(array - spread(shift, bounds)), bounds)))


def softmax_one(legal_logits: ArrayLike, indptr: ArrayLike, temperature: ArrayLike = 1.0) -> tuple[Float, Float]:
    """Softmax with a 1 in the denominator, `e^z / (1 + sum e^z)`: a row may leave mass unassigned.

    This is a softmax over the row and an extra logit of 0, so the logits are shifted by `max(0, max z)`.
    Unlike softmax, it changes when a constant is added to all logits.

    Parameters as in `softmax`; a row of only -inf is allowed.

    Returns
    -------
    probabilities `[N]`, and abstention float64 `[B]`, the unassigned mass: 1 for an empty row

    Source: Miller, "Attention is off by one" (2023), https://www.evanmiller.org/attention-is-off-by-one.html.
    """
    values, bounds, top = checked_logits(legal_logits, indptr, all_low=True)
    temperatures = checked_temperature(temperature, len(bounds) - 1)
    top = np.maximum(top, 0.0)
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp(shifted(values, bounds, top, temperatures))
        one = np.exp(-top / temperatures)
    total = one + row_sum(weights, bounds)
    return weights / spread(total, bounds), one / total


def shifted(values: Float, indptr: Index, top: Float, temperature: Float | float) -> Float:
    """`(z - max z) / T` of each row: at most 0, with a 0 in each. What overflows is far below the maximum, and -inf."""
    with np.errstate(over="ignore"):
        if isinstance(temperature, float) and temperature == 1.0:
            return values - spread(top, indptr)
        each = temperature if isinstance(temperature, float) else spread(temperature, indptr)
        # Halved first: a high temperature brings a difference back into range that overflows by itself.
        return np.asarray((values / 2 - spread(top / 2, indptr)) / each * 2)
