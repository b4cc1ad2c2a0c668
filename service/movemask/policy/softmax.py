"""Softmax and its variants over the rows of a ragged batch of legal logits.

A policy is computed from the legal logits alone, so no illegal logit can reach it. The definition of a masked softmax
is a plain softmax of `z + log(mask)` (`study.masking.log_mask_softmax`). Gathering the legal logits first gives the
same numbers without `inf - inf`.

Source: the shifted log-sum-exp of Blanchard, Higham & Higham, "Accurately computing the log-sum-exp and softmax
functions", IMA J. Numer. Anal. 41 (2021), doi:10.1093/imanum/draa038.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from movemask.policy.ragged import (
    Float,
    Index,
    checked_logits,
    checked_temperature,
    row_sum,
    spread,
)


def softmax(legal_logits: ArrayLike, indptr: ArrayLike, temperature: ArrayLike = 1.0) -> Float:
    """Returns the probabilities of each row of a ragged batch.

    Parameters
    ----------
    legal_logits : float `[N]`, below +inf; no row of only -inf
    indptr : int `[B + 1]`
    temperature : float, or float `[B]`; finite and above 0

    Returns
    -------
    float64 `[N]`; each row sums to 1 within 1e-12, an empty row stays empty

    Raises
    ------
    ValueError : shapes that do not fit, an invalid temperature, a row with NaN or +inf or of only
        -inf
    """
    values, bounds, top = checked_logits(legal_logits, indptr)
    weights = np.exp(
        shifted(values, bounds, top, checked_temperature(temperature, len(bounds) - 1))
    )
    return np.asarray(weights / spread(row_sum(weights, bounds), bounds))


def log_softmax(legal_logits: ArrayLike, indptr: ArrayLike, temperature: ArrayLike = 1.0) -> Float:
    """Returns the log-probabilities, finite where the probability itself underflows.

    Arguments are as in `softmax`.
    """
    values, bounds, top = checked_logits(legal_logits, indptr)
    below = shifted(values, bounds, top, checked_temperature(temperature, len(bounds) - 1))
    with np.errstate(divide="ignore"):
        log_total = np.log(row_sum(np.exp(below), bounds))
    return np.asarray(below - spread(log_total, bounds))


def logsumexp(values: ArrayLike, indptr: ArrayLike) -> Float:
    """Returns `log(sum(exp(row)))` of each row `[B]`.

    It is -inf for an empty row and for a row of only -inf.
    """
    array, bounds, top = checked_logits(values, indptr, all_low=True)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        return np.asarray(shift + np.log(row_sum(np.exp(array - spread(shift, bounds)), bounds)))


def softmax_one(
    legal_logits: ArrayLike, indptr: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[Float, Float]:
    """Returns the softmax with a 1 in the denominator, `e^z / (1 + sum e^z)`.

    A row may leave mass unassigned.

    This is a softmax over the row and an extra logit of 0, so the logits are shifted by
    `max(0, max z)`. Unlike a softmax, it changes if a constant is added to all logits.

    Parameters as in `softmax`; a row of only -inf is allowed.

    Returns
    -------
    probabilities `[N]`, and abstention float64 `[B]`, the unassigned mass: 1 for an empty row

    Source: Miller, "Attention is off by one" (2023),
    https://www.evanmiller.org/attention-is-off-by-one.html.
    """
    values, bounds, top = checked_logits(legal_logits, indptr, all_low=True)
    temperatures = checked_temperature(temperature, len(bounds) - 1)
    top = np.maximum(top, 0.0)
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp(shifted(values, bounds, top, temperatures))
        unassigned = np.exp(-top / temperatures)
    total = unassigned + row_sum(weights, bounds)
    return weights / spread(total, bounds), unassigned / total


def shifted(values: Float, indptr: Index, top: Float, temperature: Float | float) -> Float:
    """Returns `(z - max z) / T` of each row, `[N]`: at most 0, and 0 for the largest.

    A difference that overflows is -inf.
    """
    with np.errstate(over="ignore"):
        if isinstance(temperature, float) and temperature == 1.0:
            return values - spread(top, indptr)
        divisor = temperature if isinstance(temperature, float) else spread(temperature, indptr)
        # Halved first: the difference may overflow, and a high temperature brings it back into range.
        return np.asarray((values / 2 - spread(top / 2, indptr)) / divisor * 2)
