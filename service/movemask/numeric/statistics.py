"""Statistics of each row of a ragged batch of distributions: probabilities `[N]`, indptr `[B + 1]` → float64 `[B]`.

`0 log 0` is 0. Every statistic of an empty row is 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from movemask.numeric import checks
from movemask.numeric.ragged import Float, Index, checked_indptr, row_lengths, row_max, row_of_each, row_sum


def entropy(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """Shannon entropy in nats, `-sum p log p`.

    Source: Shannon, "A mathematical theory of communication" (1948), doi:10.1002/j.1538-7305.1948.tb01338.x.
    """
    p, bounds = checks.probabilities(probabilities, indptr)
    return row_sum(-p * np.log(np.where(p > 0, p, 1.0)), bounds) + 0.0  # no negative zero


def effective_number(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """Effective number of moves, `exp(entropy)`: 1 for a certain move, `n` for `n` equal ones.

    Source: Hill number of order 1, Hill (1973), doi:10.2307/1934352.
    """
    bounds = checked_indptr(indptr, np.size(probabilities))
    return np.where(row_lengths(bounds) > 0, np.exp(entropy(probabilities, bounds)), 0.0)


def inverse_simpson(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """Effective number of moves that gives rare moves less weight, `1 / sum p²`.

    Source: Hill number of order 2; Simpson (1949), doi:10.1038/163688a0.
    """
    p, bounds = checks.probabilities(probabilities, indptr)
    squares = row_sum(p * p, bounds)
    return np.where(squares > 0, 1 / np.where(squares > 0, squares, 1.0), 0.0)


def gini(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """Gini coefficient, the mean difference of two moves over twice the mean: 0 for `n` equal moves, `1 - 1/n` for a
    certain one.

    Source: Gini (1912); Sen, "On Economic Inequality" (1973).
    """
    p, bounds = checks.probabilities(probabilities, indptr)
    rows = row_of_each(bounds)
    ordered = p[np.lexsort((p, rows))]
    rank = np.arange(1, len(p) + 1) - bounds[rows]
    n = np.maximum(row_lengths(bounds), 1)
    total = row_sum(p, bounds)
    weighted = 2 * row_sum(rank * ordered, bounds) / np.where(total > 0, n * total, 1.0)
    return np.where(total > 0, weighted - (n + 1) / n, 0.0)


def maximum(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """Largest probability."""
    p, bounds = checks.probabilities(probabilities, indptr)
    return np.where(row_lengths(bounds) > 0, row_max(p, bounds), 0.0)


def total_variation(probabilities: ArrayLike, others: ArrayLike, indptr: ArrayLike) -> Float:
    """Total variation distance of two distributions, `½ sum |p - q|`: the largest difference of an event's chance."""
    p, q, bounds = _pair(probabilities, others, indptr)
    return row_sum(np.abs(p - q), bounds) / 2


def kl_divergence(probabilities: ArrayLike, others: ArrayLike, indptr: ArrayLike) -> Float:
    """`sum p log(p / q)` in nats; inf where `q` is 0 and `p` is not.

    Source: Kullback & Leibler (1951), doi:10.1214/aoms/1177729694.
    """
    p, q, bounds = _pair(probabilities, others, indptr)
    with np.errstate(divide="ignore"):
        terms = np.where(p > 0, p * (np.log(np.where(p > 0, p, 1.0)) - np.log(np.where(p > 0, q, 1.0))), 0.0)
    return row_sum(terms, bounds)


def jensen_shannon(probabilities: ArrayLike, others: ArrayLike, indptr: ArrayLike) -> Float:
    """Jensen-Shannon divergence in nats, the mean KL of both from their midpoint: symmetric, finite, at most log 2.

    Source: Lin (1991), doi:10.1109/18.61115.
    """
    p, q, bounds = _pair(probabilities, others, indptr)
    middle = p / 2 + q / 2
    # Of a subnormal p, the middle can round to 0; it must be above 0 wherever p is.
    middle = np.maximum(middle, np.maximum(p, q) / 2)
    safe = np.where(middle > 0, middle, np.maximum(p, q))
    both = kl_divergence(p, safe, bounds) + kl_divergence(q, safe, bounds)
    return np.maximum(both / 2, 0.0)  # rounding can make it negative for equal distributions


def _pair(probabilities: ArrayLike, others: ArrayLike, indptr: ArrayLike) -> tuple[Float, Float, Index]:
    p, bounds = checks.probabilities(probabilities, indptr)
    q = np.asarray(others, dtype=np.float64)
    if q.shape != p.shape:
        raise ValueError(f"others: expected shape {p.shape}, got {q.shape}")
    return p, checks.probabilities(q, bounds)[0], bounds
