"""Masked softmax over the legal slots of a batch, ragged (the main path) and dense.

The policy is computed from the legal logits alone, so nothing that stands in an illegal slot can reach it. Adding
`log(mask)` to the logits and taking a plain softmax is the definition; gathering first gives the same numbers without
`inf - inf` and without reading the `A - |L|` illegal ones.

Source: the shifted log-sum-exp of Blanchard, Higham & Higham, "Accurately computing the log-sum-exp and
softmax functions", IMA J. Numer. Anal. 41 (2021), doi:10.1093/imanum/draa038.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.errors import InvalidLogits
from service.numeric.ragged import Float, Index, checked_indptr, row_max, row_of_each, row_sum

Kernel = Callable[[Float, Index, ArrayLike], Float]


def gather_legal(logits: ArrayLike, slots: ArrayLike, indptr: ArrayLike) -> tuple[Float, Index]:
    """The legal logits of a batch.

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
    array = np.asarray(logits)
    index = np.asarray(slots)
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"logits: expected floats [B, A], got {array.dtype} of shape {array.shape}")
    if index.ndim != 1 or (index.size and not np.issubdtype(index.dtype, np.integer)):
        raise ValueError(f"slots: expected integers [N], got {index.dtype} of shape {index.shape}")
    bounds = checked_indptr(indptr, index.size)
    if len(bounds) - 1 != len(array):
        raise ValueError(f"indptr: {len(bounds) - 1} rows, but logits have {len(array)}")
    if index.size and (index.min() < 0 or index.max() >= array.shape[1]):
        raise ValueError(f"slots: must be in 0..{array.shape[1] - 1}, got {index.min()}..{index.max()}")
    rows = row_of_each(bounds)
    values = array[rows, index.astype(np.intp, copy=False)].astype(np.float64)
    unusable = np.isnan(values) | (values == np.inf)
    if unusable.any():
        first = int(np.argmax(unusable))
        raise InvalidLogits(f"row {rows[first]}, slot {index[first]}: the logit of a legal move is {values[first]}")
    hopeless = (np.diff(bounds) > 0) & (row_max(values, bounds) == -np.inf)
    if hopeless.any():
        raise InvalidLogits(f"row {int(np.argmax(hopeless))}: the logit of every legal move is -inf")
    return values, bounds


def log_softmax(legal_logits: ArrayLike, indptr: ArrayLike, temperature: ArrayLike = 1.0) -> Float:
    """Log-probabilities of each row of a ragged batch.

    Parameters
    ----------
    legal_logits : float `[N]`, finite or -inf, as `gather_legal` returns them
    indptr : int `[B + 1]`
    temperature : float, or float `[B]`; finite and above 0

    Returns
    -------
    float64 `[N]`; an empty row stays empty
    """
    values = np.asarray(legal_logits, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"legal_logits: expected floats [N], got shape {values.shape}")
    bounds = checked_indptr(indptr, values.size)
    rows = row_of_each(bounds)
    temperatures = _checked_temperature(temperature, len(bounds) - 1)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):  # far below the maximum is -inf, as it should be
        shifted = (values - row_max(values, bounds)[rows]) / temperatures[rows]
        log_total = np.log(row_sum(np.exp(shifted), bounds))
    return np.asarray(shifted - log_total[rows])


def softmax(legal_logits: ArrayLike, indptr: ArrayLike, temperature: ArrayLike = 1.0) -> Float:
    """Probabilities of each row of a ragged batch: see `log_softmax`. Each row sums to 1 within 1e-12."""
    values = np.asarray(legal_logits, dtype=np.float64)
    bounds = checked_indptr(indptr, values.size)
    rows = row_of_each(bounds)
    temperatures = _checked_temperature(temperature, len(bounds) - 1)
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp((values - row_max(values, bounds)[rows]) / temperatures[rows])
    return np.asarray(weights / row_sum(weights, bounds)[rows])


def logsumexp(values: ArrayLike, indptr: ArrayLike) -> Float:
    """`log(sum(exp(row)))` of each row `[B]`; -inf for an empty row or one of -inf alone."""
    array = np.asarray(values, dtype=np.float64)
    bounds = checked_indptr(indptr, array.size)
    top = row_max(array, bounds)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(under="ignore", divide="ignore"):
        return np.asarray(shift + np.log(row_sum(np.exp(array - shift[row_of_each(bounds)]), bounds)))


def masked_softmax(logits: ArrayLike, legal_mask: ArrayLike, temperature: ArrayLike = 1.0) -> Float:
    """Dense form: logits `[B, A]` and legal_mask bool `[B, A]` (True = legal) → float64 `[B, A]`, 0 where illegal.

    A row with no legal slot is all zeros. Raises as `gather_legal` does.
    """
    return _dense(softmax, 0.0, logits, legal_mask, temperature)


def masked_log_softmax(logits: ArrayLike, legal_mask: ArrayLike, temperature: ArrayLike = 1.0) -> Float:
    """Dense form of `log_softmax`: float64 `[B, A]`, -inf where illegal."""
    return _dense(log_softmax, -np.inf, logits, legal_mask, temperature)


def ragged_of_mask(legal_mask: NDArray[np.bool_]) -> tuple[Index, Index]:
    """legal_mask bool `[B, A]` → legal slots `[N]`, row after row in rising order, and indptr `[B + 1]`."""
    rows, slots = np.nonzero(legal_mask)
    indptr = np.zeros(len(legal_mask) + 1, dtype=np.intp)
    np.cumsum(np.bincount(rows, minlength=len(legal_mask)), out=indptr[1:])
    return slots, indptr


def _dense(kernel: Kernel, elsewhere: float, logits: ArrayLike, legal_mask: ArrayLike, temperature: ArrayLike) -> Float:
    mask = np.asarray(legal_mask)
    array = np.asarray(logits)
    if mask.dtype != np.bool_ or mask.ndim != 2:
        raise ValueError(f"legal_mask: expected bool [B, A], got {mask.dtype} of shape {mask.shape}")
    if array.shape != mask.shape:
        raise ValueError(f"legal_mask: shape {mask.shape}, but logits have {array.shape}")
    slots, indptr = ragged_of_mask(mask)
    values, indptr = gather_legal(array, slots, indptr)
    result = np.full(mask.shape, elsewhere)
    result[mask] = kernel(values, indptr, temperature)
    return result


def _checked_temperature(temperature: ArrayLike, rows: int) -> Float:
    array = np.asarray(temperature, dtype=np.float64)
    if array.ndim > 1 or (array.ndim == 1 and len(array) != rows):
        raise ValueError(f"temperature: expected a number or [B] = [{rows}], got shape {array.shape}")
    if not np.all(np.isfinite(array) & (array > 0)):
        raise ValueError(f"temperature: must be finite and above 0, got {temperature!r}")
    return np.broadcast_to(array, (rows,))
