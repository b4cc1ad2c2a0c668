"""Derivatives of softmax, softmax_one and α-entmax by their logits, for single rows, batches and masked rows.

A masked row is its legal entries: the derivative by an illegal logit is 0. The rows of a batch are independent, so its
Jacobian is block-diagonal. All Jacobians here are symmetric: a product from the left (VJP) equals one from the right
(JVP).

Sources: for softmax, `J = diag(s) - s sᵀ`, Bridle (1990), doi:10.1007/978-3-642-76153-9_28; for α-entmax,
`J = diag(g) - g gᵀ / sum g` with `g = p^(2 - α)` on the support, Peters, Niculae & Martins (2019), arXiv:1905.05702.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from movemask.numeric import checks
from movemask.numeric.ragged import Float, Index, row_of_each, row_sum, spread


def softmax_jacobian(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """`diag(s) - s sᵀ` of each row as one block-diagonal matrix: `[N]`, `[B + 1]` → float64 `[N, N]`.

    Valid for the probabilities of softmax_one too. Divide by the temperature if there was one.
    """
    s, bounds = checks.probabilities(probabilities, indptr)
    rows = row_of_each(bounds)
    same_row = rows[:, None] == rows[None, :]
    return np.asarray(np.diag(s) - np.where(same_row, np.outer(s, s), 0.0))


def softmax_jvp(probabilities: ArrayLike, indptr: ArrayLike, vectors: ArrayLike) -> Float:
    """`J v` of each row without forming `J`: `s (v - s·v)`; probabilities and vectors `[N]` → float64 `[N]`.

    VJP and JVP alike (`J` is symmetric); for softmax_one too. A -inf logit, of probability 0, gives 0 for finite `v`.
    """
    s, bounds = checks.probabilities(probabilities, indptr)
    v = checks.vectors(vectors, s)
    return np.asarray(s * (v - spread(row_sum(s * v, bounds), bounds)))


softmax_vjp = softmax_jvp


def entmax_jacobian(probabilities: ArrayLike, indptr: ArrayLike, alpha: ArrayLike) -> Float:
    """Block-diagonal `diag(g) - g gᵀ / sum g` with `g = p^(2 - α)` on the support: `[N]` → float64 `[N, N]`.

    α = 2 is sparsemax, 1.5 is entmax15, 1 is softmax. At the edge of the support the map is not
    differentiable; this is the derivative from inside.
    """
    g, bounds = entmax_weights(probabilities, indptr, alpha)
    rows = row_of_each(bounds)
    same_row = rows[:, None] == rows[None, :]
    total = spread(row_sum(g, bounds), bounds)
    return np.asarray(np.diag(g) - np.where(same_row, np.outer(g, g / total), 0.0))


def entmax_jvp(probabilities: ArrayLike, indptr: ArrayLike, vectors: ArrayLike, alpha: ArrayLike) -> Float:
    """`J v` of each row without forming `J`: `g (v - g·v / sum g)`; VJP and JVP alike."""
    g, bounds = entmax_weights(probabilities, indptr, alpha)
    v = checks.vectors(vectors, g)
    return np.asarray(g * (v - spread(row_sum(g * v, bounds) / row_sum_or_one(g, bounds), bounds)))


entmax_vjp = entmax_jvp


def row_sum_or_one(values: Float, indptr: Index) -> Float:
    """Row sums to divide by: 1 where the sum is 0."""
    total = row_sum(values, indptr)
    return np.where(total == 0, 1.0, total)


def entmax_weights(probabilities: ArrayLike, indptr: ArrayLike, alpha: ArrayLike) -> tuple[Float, Index]:
    """`g = p^(2 - α)` on the support, 0 elsewhere, and the checked indptr."""
    p, bounds = checks.probabilities(probabilities, indptr)
    alphas = checks.per_row(
        "alpha", alpha, len(bounds) - 1, lambda a: np.isfinite(a) & (a >= 1), "finite and at least 1"
    )
    support = p > 0
    powers = spread(2 - alphas, bounds)
    return np.where(support, np.where(support, p, 1.0) ** powers, 0.0), bounds
