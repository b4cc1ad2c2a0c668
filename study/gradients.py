"""Derivatives of softmax, softmax_one and α-entmax by their logits, and a distribution without exponentials.

A masked row has only its legal entries: the derivative by an illegal logit is 0. The rows of a batch are independent,
so the Jacobian of the batch is block-diagonal. The Jacobians of softmax and entmax are symmetric: a product from the
left (VJP) equals the product from the right (JVP). `absolute` normalises by absolute values, `|z| / Σ|z|`. It cannot
overflow, but a logit of -5 has the weight of 5, and scaling all logits by a constant has no effect.

Sources: for softmax, `J = diag(s) - s sᵀ`, Bridle (1990), doi:10.1007/978-3-642-76153-9_28; for α-entmax,
`J = diag(g) - g gᵀ / sum g` with `g = p^(2 - α)` on the support, Peters, Niculae & Martins (2019), arXiv:1905.05702;
`absolute` is named as the alternative to softmax by Bloem, "Stable softmax for sparse matrices" (2019),
https://peterbloem.nl/blog/stable-softmax, conclusion.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from movemask.policy.ragged import (
    Float,
    Index,
    checked_alpha,
    checked_probabilities,
    checked_values,
    row_lengths,
    row_max,
    row_of_each,
    row_sum,
    spread,
)


def softmax_jacobian(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """`diag(s) - s sᵀ` of each row as one block-diagonal matrix: `[N]`, `[B + 1]` → float64 `[N, N]`.

    Valid for softmax_one too. Divide by the temperature if it is not 1.
    """
    s, bounds = checked_probabilities(probabilities, indptr)
    rows = row_of_each(bounds)
    same_row = rows[:, None] == rows[None, :]
    return np.asarray(np.diag(s) - np.where(same_row, np.outer(s, s), 0.0))


def softmax_jvp(probabilities: ArrayLike, indptr: ArrayLike, vectors: ArrayLike) -> Float:
    """`J v` of each row without forming `J`: `s (v - s·v)`; probabilities and vectors `[N]` → float64 `[N]`.

    `v J` is the same, because `J` is symmetric. Valid for softmax_one too. A probability of 0 gives 0 for finite `v`.
    """
    s, bounds = checked_probabilities(probabilities, indptr)
    v = _checked_vectors(vectors, s)
    return np.asarray(s * (v - spread(row_sum(s * v, bounds), bounds)))


softmax_vjp = softmax_jvp


def entmax_jacobian(probabilities: ArrayLike, indptr: ArrayLike, alpha: ArrayLike) -> Float:
    """Block-diagonal `diag(g) - g gᵀ / sum g` with `g = p^(2 - α)` on the support: `[N]` → float64 `[N, N]`.

    α = 2 is sparsemax, 1.5 is entmax15, 1 is softmax. At the edge of the support, which has no derivative, this is the
    derivative from inside.
    """
    g, bounds = entmax_weights(probabilities, indptr, alpha)
    rows = row_of_each(bounds)
    same_row = rows[:, None] == rows[None, :]
    total = spread(row_sum(g, bounds), bounds)
    return np.asarray(np.diag(g) - np.where(same_row, np.outer(g, g / total), 0.0))


def entmax_jvp(probabilities: ArrayLike, indptr: ArrayLike, vectors: ArrayLike, alpha: ArrayLike) -> Float:
    """`J v` of each row without forming `J`: `g (v - g·v / sum g)`; `v J` is the same."""
    g, bounds = entmax_weights(probabilities, indptr, alpha)
    v = _checked_vectors(vectors, g)
    total = row_sum(g, bounds)
    return np.asarray(g * (v - spread(row_sum(g * v, bounds) / np.where(total == 0, 1.0, total), bounds)))


entmax_vjp = entmax_jvp


def entmax_weights(probabilities: ArrayLike, indptr: ArrayLike, alpha: ArrayLike) -> tuple[Float, Index]:
    """`g = p^(2 - α)` on the support, 0 elsewhere, and the checked indptr."""
    p, bounds = checked_probabilities(probabilities, indptr)
    support = p > 0
    powers = spread(2 - checked_alpha(alpha, len(bounds) - 1), bounds)
    return np.where(support, np.where(support, p, 1.0) ** powers, 0.0), bounds


def absolute(legal_logits: ArrayLike, indptr: ArrayLike) -> Float:
    """Probabilities `|z| / Σ|z|` of each row of a ragged batch.

    Parameters
    ----------
    legal_logits : float `[N]`, finite
    indptr : int `[B + 1]`

    Returns
    -------
    float `[N]`; each row sums to 1 within 1e-12. A row of zeros is uniform; an empty row stays empty.

    Raises
    ------
    ValueError : shapes that do not fit, or a logit that is not finite
    """
    z, bounds = _finite(legal_logits, indptr)
    return _normalised(z, bounds)[0]


def absolute_jvp(legal_logits: ArrayLike, indptr: ArrayLike, vectors: ArrayLike) -> Float:
    """`J v` of each row: logits and vectors `[N]` → float64 `[N]`.

    `J = (I - p 1ᵀ) diag(sign z) / Σ|z|`, which is not symmetric. At a logit of 0, `|z|` has no derivative; 0 is used.
    A row of zeros therefore gives 0.
    """
    p, sign, scale, bounds = _slopes(legal_logits, indptr)
    moved = sign * _checked_vectors(vectors, p)
    with np.errstate(over="ignore"):
        return np.asarray((moved - p * spread(row_sum(moved, bounds), bounds)) / scale)


def absolute_vjp(legal_logits: ArrayLike, indptr: ArrayLike, vectors: ArrayLike) -> Float:
    """`Jᵀ v` of each row: a gradient by the probabilities → a gradient by the logits, float64 `[N]`."""
    p, sign, scale, bounds = _slopes(legal_logits, indptr)
    v = _checked_vectors(vectors, p)
    with np.errstate(over="ignore"):
        return np.asarray(sign * (v - spread(row_sum(p * v, bounds), bounds)) / scale)


def _slopes(legal_logits: ArrayLike, indptr: ArrayLike) -> tuple[Float, Float, Float, Index]:
    """Probabilities, `sign z`, `Σ|z|` spread over its row, and the checked indptr.

    Divide by the sum: its reciprocal overflows for subnormal logits.
    """
    z, bounds = _finite(legal_logits, indptr)
    p, top, scaled_sum = _normalised(z, bounds)
    with np.errstate(over="ignore"):
        return p, np.sign(z), spread(scaled_sum * top, bounds), bounds


def _normalised(z: Float, indptr: Index) -> tuple[Float, Float, Float]:
    """Probabilities `[N]`; by row `[B]`, the largest magnitude and `Σ|z|` over it, both 1 for a row of zeros."""
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
    z, bounds = checked_values("legal_logits", legal_logits, indptr)
    if not np.isfinite(z).all():
        at = int(np.argmin(np.isfinite(z)))
        raise ValueError(f"legal_logits: must be finite, got {z[at]} at {at}")
    return z, bounds


def _checked_vectors(values: ArrayLike, like: Float) -> Float:
    """The vectors `[N]` of a product with a Jacobian, in float64. Raises ValueError unless shaped like `like`."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != like.shape:
        raise ValueError(f"vectors: expected shape {like.shape}, got {array.shape}")
    return array
