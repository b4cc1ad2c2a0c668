"""Losses of a distribution against the played move, and their gradients by the logits.

`targets` int `[B]` is the index of the played move in its row; every row must have one. Cross-entropy is over the legal
moves alone, which is what a masked policy is trained and evaluated by.

Source of the Fenchel-Young losses: Blondel, Martins & Niculae, "Learning with Fenchel-Young losses", JMLR 21 (2020),
arXiv:1901.02324.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.numeric import checks, entmax
from movemask.numeric.ragged import Float, Index, row_lengths, row_max, row_sum, spread
from movemask.numeric.softmax import log_softmax, shifted, softmax


def cross_entropy(
    legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> Float:
    """`-log p(target)` of each row in nats, `[B]`; finite where `p` itself underflows, inf for a logit of -inf.

    legal_logits `[N]`, indptr `[B + 1]`, targets int `[B]`; ValueError for arguments that do not fit.
    """
    at = places(targets, *checks.ragged("legal_logits", legal_logits, indptr))
    return np.asarray(-log_softmax(legal_logits, indptr, temperature)[at], dtype=np.float64)


def cross_entropy_gradient(
    legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> Float:
    """Gradient of each row's cross-entropy by its logits, `(s - y) / T`: float64 `[N]`."""
    values, bounds = checks.ragged("legal_logits", legal_logits, indptr)
    gradient = np.array(softmax(values, bounds, temperature), dtype=np.float64)
    gradient[places(targets, values, bounds)] -= 1.0
    temperatures = np.broadcast_to(np.asarray(temperature, dtype=np.float64), (len(bounds) - 1,))
    return np.asarray(gradient / spread(temperatures, bounds))


def mean_cross_entropy(
    legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[float, Float]:
    """Mean over a batch of at least one row, and its gradient by the logits, `(s - y) / (B T)`: float64 `[N]`."""
    losses = cross_entropy(legal_logits, indptr, targets, temperature)
    if not len(losses):
        raise ValueError("targets: the mean of no rows")
    return float(losses.mean()), cross_entropy_gradient(legal_logits, indptr, targets, temperature) / len(losses)


def fenchel_young(
    legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike, alpha: ArrayLike
) -> tuple[Float, Float]:
    """The loss that belongs to α-entmax, `(p - y)·z + H_α(p)` with `p = α-entmax(z)`, and its gradient `p - y`.

    α = 2 is the sparsemax loss, 1.5 entmax15's, 1 cross-entropy. At least 0, and 0 where all mass is on the
    target, which for α > 1 happens at finite logits.

    Returns
    -------
    losses float64 `[B]`, gradient float64 `[N]`
    """
    values, bounds = checks.ragged("legal_logits", legal_logits, indptr)
    at = places(targets, values, bounds)
    rows = len(bounds) - 1
    p = np.array(entmax.entmax(values, bounds, alpha), dtype=np.float64)
    below = shifted(values, bounds, row_max(values, bounds), 1.0)
    # A move without mass adds nothing to p·z; without this, 0 * -inf would be NaN.
    expected = row_sum(np.where(p > 0, p * np.where(p > 0, below, 0.0), 0.0), bounds)
    alphas = checks.per_row("alpha", alpha, rows, lambda a: a >= 1, "at least 1")
    losses = expected - below[at] + _tsallis(p, bounds, alphas)
    gradient = p
    gradient[at] -= 1.0
    return np.maximum(losses, 0.0), gradient


def _tsallis(p: Float, indptr: Index, alphas: Float) -> Float:
    """Tsallis' entropy of each row: `sum(p - p^α) / (α (α - 1))`, Shannon's at α = 1."""
    alpha = spread(alphas, indptr)
    shannon = row_sum(-p * np.log(np.where(p > 0, p, 1.0)), indptr)
    other = row_sum(p - p**alpha, indptr) / np.where(alphas == 1, 1.0, alphas * (alphas - 1))
    return np.where(alphas == 1, shannon, other)


def places(targets: ArrayLike, values: Float, indptr: Index) -> NDArray[np.intp]:
    """Indices into `[N]` of the targets `[B]`; ValueError for one outside its row."""
    index = np.asarray(targets)
    rows = len(indptr) - 1
    if index.shape != (rows,) or (index.size and index.dtype.kind not in "iu"):
        raise ValueError(f"targets: expected integers [B] = [{rows}], got {index.dtype} of shape {index.shape}")
    wrong = (index < 0) | (index >= row_lengths(indptr))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"targets: {index[row]} in row {row}, which has {row_lengths(indptr)[row]} entries")
    return np.asarray(indptr[:-1] + index, dtype=np.intp)
