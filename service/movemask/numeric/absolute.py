"""Normalising by absolute values, `|z| / Σ|z|`: a distribution without exponentials, and its derivative.

It cannot overflow, but a large negative logit weighs as much as a large positive one, and scaling all logits by a
constant has no effect. The dense `[B, A]` forms are in `dense` and `dense_losses`.

Source: named as the alternative to softmax by Bloem, "Stable softmax for sparse matrices" (2019),
https://peterbloem.nl/blog/stable-softmax, conclusion.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.numeric import checks
from movemask.numeric.ragged import Float, Index, row_lengths, row_max, row_sum, spread


def absolute(legal_logits: ArrayLike, indptr: ArrayLike, *, keep_dtype: bool = False) -> NDArray[np.floating]:
    """Probabilities `|z| / Σ|z|` of each row of a ragged batch.

    Parameters
    ----------
    legal_logits : float `[N]`, finite
    indptr : int `[B + 1]`
    keep_dtype : return the dtype of the input instead of float64; arithmetic is in float64 either way

    Returns
    -------
    float `[N]`; each row sums to 1 within 1e-12. A row of zeros is uniform; an empty row stays empty.

    Raises
    ------
    ValueError : shapes that do not fit, or a logit that is not finite
    """
    z, bounds = _finite(legal_logits, indptr)
    return checks.result(_normalised(z, bounds)[0], legal_logits, keep_dtype)


def absolute_jvp(legal_logits: ArrayLike, indptr: ArrayLike, vectors: ArrayLike) -> Float:
    """`J v` of each row: logits and vectors `[N]` → float64 `[N]`.

    `J = (I - p 1ᵀ) diag(sign z) / Σ|z|` is not symmetric, unlike that of softmax. At a logit of 0, where `|z|` has no
    derivative, 0 is used; so too for every logit of a row of zeros.
    """
    p, sign, scale, bounds = _slopes(legal_logits, indptr)
    moved = sign * checks.vectors(vectors, p)
    with np.errstate(over="ignore"):
        return np.asarray((moved - p * spread(row_sum(moved, bounds), bounds)) / scale)


def absolute_vjp(legal_logits: ArrayLike, indptr: ArrayLike, vectors: ArrayLike) -> Float:
    """`Jᵀ v` of each row, which takes a gradient by the probabilities to one by the logits: `[N]` → float64 `[N]`."""
    p, sign, scale, bounds = _slopes(legal_logits, indptr)
    v = checks.vectors(vectors, p)
    with np.errstate(over="ignore"):
        return np.asarray(sign * (v - spread(row_sum(p * v, bounds), bounds)) / scale)


def _slopes(legal_logits: ArrayLike, indptr: ArrayLike) -> tuple[Float, Float, Float, Index]:
    """Probabilities, `sign z`, `Σ|z|` spread over its row, and the indptr checked. The sum is a divisor, not a factor:
    its reciprocal overflows for subnormal logits."""
    z, bounds = _finite(legal_logits, indptr)
    p, top, scaled_sum = _normalised(z, bounds)
    with np.errstate(over="ignore"):
        return p, np.sign(z), spread(scaled_sum * top, bounds), bounds


def _normalised(z: Float, indptr: Index) -> tuple[Float, Float, Float]:
    """Probabilities `[N]`; the largest magnitude of each row `[B]` and `Σ|z|` divided by it, both 1 where it is 0."""
    magnitude = np.abs(z)
    top = row_max(magnitude, indptr)
    zero = top == 0
    # Divided by the largest first, so that the sum does not overflow.
    top = np.where(top > 0, top, 1.0)
    scaled = magnitude / spread(top, indptr)
    total = row_sum(scaled, indptr)
    uniform = 1.0 / np.maximum(row_lengths(indptr), 1)
    total = np.where(total > 0, total, 1.0)
    p = np.where(spread(zero, indptr), spread(uniform, indptr), scaled / spread(total, indptr))
    return p, top, total


def _finite(legal_logits: ArrayLike, indptr: ArrayLike) -> tuple[Float, Index]:
    z, bounds = checks.ragged("legal_logits", legal_logits, indptr)
    if not np.isfinite(z).all():
        at = int(np.argmin(np.isfinite(z)))
        raise ValueError(f"legal_logits: must be finite, got {z[at]} at {at}")
    return z, bounds
