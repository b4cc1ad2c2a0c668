"""Softmax of logits in half or single precision: computed in float64, rounded once to the dtype of the logits.

numpy has no bfloat16: convert such logits to float32, which is exact. A row of float16 sums to 1 within about 0.0005,
probabilities below 3e-8 become 0, and logarithms below -65504 become -inf.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.policy import softmax as exact
from movemask.policy.ragged import Float


def softmax(legal_logits: ArrayLike, indptr: ArrayLike, temperature: ArrayLike = 1.0) -> NDArray[Any]:
    """Probabilities `[N]` in the dtype of the logits; arguments and errors as in `policy.softmax`."""
    return rounded_like(exact.softmax(legal_logits, indptr, temperature), legal_logits)


def log_softmax(legal_logits: ArrayLike, indptr: ArrayLike, temperature: ArrayLike = 1.0) -> NDArray[Any]:
    """Log-probabilities `[N]` in the dtype of the logits; arguments and errors as in `policy.softmax`."""
    return rounded_like(exact.log_softmax(legal_logits, indptr, temperature), legal_logits)


def rounded_like(values: Float, logits: ArrayLike) -> NDArray[Any]:
    """The values in the dtype of the logits. Numbers too low for it become -inf."""
    with np.errstate(over="ignore"):
        return values.astype(np.asarray(logits).dtype, copy=False)
