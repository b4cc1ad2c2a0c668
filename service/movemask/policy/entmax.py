"""Sparse alternatives to softmax: sparsemax, 1.5-entmax and α-entmax over the rows of a ragged batch.

Each solves `argmax_p  p·z + H_α(p)` over distributions `p`, where `H_α` is Tsallis' entropy. The solution is
`p = [(α - 1) z - τ]_+ ^ (1 / (α - 1))`, so entries far below the best get exactly 0. α = 1 is softmax, α = 2 sparsemax.
A constant added to a row changes nothing.

Sources: Martins & Astudillo, "From softmax to sparsemax" (2016), arXiv:1602.02068; Peters, Niculae & Martins, "Sparse
sequence-to-sequence models" (2019), arXiv:1905.05702 (exact threshold of 1.5-entmax, bisection).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.policy.ragged import (
    Float,
    Index,
    checked_alpha,
    checked_logits,
    checked_temperature,
    padded,
    row_lengths,
    row_sum,
    spread,
)
from movemask.policy.softmax import shifted, softmax

#: Scaled entries this far below the row's best are outside the support: the threshold is within 1 of the best.
_FLOOR = -2.0
#: If α - 1 is below this, the threshold is held as `1 + τ` and the power is taken by log1p. `τ` itself would lose its
#: last digits beside 1, and the power `1 / (α - 1)` would enlarge that error.
_NEAR = 0.5
_BISECTIONS = 64  # halvings of an interval of length 1, past float64's last bit


def sparsemax(legal_logits: ArrayLike, indptr: ArrayLike, temperature: ArrayLike = 1.0) -> Float:
    """Projects each row onto the distributions (Euclidean), by the exact threshold.

    legal_logits `[N]` below +inf (no row of only -inf), indptr `[B + 1]`, temperature a number or
    `[B]` → `[N]`. Each row sums to 1 within 1e-12; an empty row stays empty. Raises ValueError for
    invalid shapes, temperatures and logits.
    """
    z, bounds = _scaled(legal_logits, indptr, temperature, 1.0)
    ordered = _descending(z, bounds)
    counts = np.arange(1, ordered.shape[1] + 1)
    cumulated = np.cumsum(ordered, axis=1)
    support = np.count_nonzero(1 + counts * ordered > cumulated, axis=1)
    threshold = (_at(cumulated, support) - 1) / np.maximum(support, 1)
    p = np.maximum(z - spread(threshold, bounds), 0.0)
    return _normalised(p, bounds)


def entmax15(legal_logits: ArrayLike, indptr: ArrayLike, temperature: ArrayLike = 1.0) -> Float:
    """Returns 1.5-entmax by its exact threshold. Arguments are as in `sparsemax`."""
    z, bounds = _scaled(legal_logits, indptr, temperature, 0.5)
    ordered = _descending(z, bounds)
    counts = np.arange(1, ordered.shape[1] + 1)
    mean = np.cumsum(ordered, axis=1) / counts
    mean_square = np.cumsum(ordered**2, axis=1) / counts
    slack = np.maximum((1 - counts * (mean_square - mean**2)) / counts, 0.0)
    thresholds = mean - np.sqrt(slack)
    support = np.count_nonzero((thresholds <= ordered) & (ordered > _FLOOR), axis=1)
    p = np.maximum(z - spread(_at(thresholds, support), bounds), 0.0) ** 2
    return _normalised(p, bounds)


def entmax(
    legal_logits: ArrayLike,
    indptr: ArrayLike,
    alpha: ArrayLike,
    temperature: ArrayLike = 1.0,
) -> Float:
    """Returns α-entmax by bisection on the threshold.

    alpha : at least 1, a number or `[B]`

    Other arguments as in `sparsemax`. For α = 2 and 1.5 it agrees with sparsemax and entmax15
    within 1e-12. Above α = 2 a probability near 0 is accurate only to about
    `1e-16 ** (1 / (α - 1))`, because the curve is vertical there.
    """
    values, bounds, _ = checked_logits(legal_logits, indptr)
    rows = len(bounds) - 1
    alphas = checked_alpha(alpha, rows)
    plain = alphas == 1.0
    # a softmax row needs no power; its result is set below
    power = np.where(plain, 1.0, alphas - 1)
    z, _ = _scaled(values, bounds, temperature, power)
    exponents, near = spread(1 / power, bounds), power < _NEAR
    curved = spread(near.astype(np.float64), bounds) > 0

    def curve(threshold: Float) -> Float:
        above = z - spread(threshold, bounds)
        return np.where(
            curved,
            np.exp(np.log1p(np.maximum(above, -1.0)) * exponents),
            np.maximum(above, 0.0) ** np.where(curved, 1.0, exponents),
        )

    # of the best move's term, for a uniform row
    least = np.log(np.maximum(row_lengths(bounds), 1)) * -power
    low = np.where(near, 0.0, -1.0)
    high = np.where(near, -np.expm1(least), -np.exp(least))
    with np.errstate(under="ignore", divide="ignore"):
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            mass = row_sum(curve(middle), bounds)
            low = np.where(mass >= 1, middle, low)
            high = np.where(mass >= 1, high, middle)
        p = _normalised(curve(low), bounds)
    if plain.any():
        p = np.where(
            spread(plain.astype(np.float64), bounds) > 0, softmax(values, bounds, temperature), p
        )
    return p


def _scaled(
    legal_logits: ArrayLike, indptr: ArrayLike, temperature: ArrayLike, scale: float | Float
) -> tuple[Float, Index]:
    """`scale * (z - max z) / T`, not below _FLOOR."""
    values, bounds, top = checked_logits(legal_logits, indptr)
    temperatures = checked_temperature(temperature, len(bounds) - 1)
    factor = np.broadcast_to(np.asarray(scale), (len(bounds) - 1,))
    return np.maximum(
        shifted(values, bounds, top, temperatures) * spread(factor, bounds), _FLOOR
    ), bounds


def _descending(values: Float, indptr: Index) -> Float:
    """Returns each row in descending order, padded with _FLOOR: `[N]` → `[B, longest]`."""
    return -np.sort(-padded(values, indptr, _FLOOR), axis=1)


def _at(values: Float, count: NDArray[np.integer]) -> Float:
    """`values[b, count[b] - 1]` for each row; 0 where the count is 0."""
    if not values.shape[1]:
        return np.zeros(len(values))
    picked = np.take_along_axis(values, np.maximum(count - 1, 0)[:, None], axis=1)[:, 0]
    return np.where(count > 0, picked, 0.0)


def _normalised(p: Float, indptr: Index) -> Float:
    """Returns each row divided by its sum, so that the threshold's rounding error does not change
    the sum.
    """
    return np.asarray(p / spread(row_sum(p, indptr), indptr))
