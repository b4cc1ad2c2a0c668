"""Distances between two distributions over the same entries. `movemask.policy.distributions` has their KL divergence.

Both functions take probabilities `[N]` of the rows of a ragged batch, others `[N]` and indptr `[B + 1]`, and return
float64 `[B]`. The distance of two empty rows is 0. They raise ValueError for shapes that do not fit and for numbers
below 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from movemask.policy.distributions import checked_pair, kl_divergence
from movemask.policy.ragged import Float, row_sum


def total_variation(probabilities: ArrayLike, others: ArrayLike, indptr: ArrayLike) -> Float:
    """`½ sum |p - q|`: the largest difference between the probabilities of an event."""
    p, q, bounds = checked_pair(probabilities, others, indptr)
    return row_sum(np.abs(p - q), bounds) / 2


def jensen_shannon(probabilities: ArrayLike, others: ArrayLike, indptr: ArrayLike) -> Float:
    """Jensen-Shannon divergence in nats: the mean KL of both from their midpoint. Symmetric, finite, at most log 2.

    Source: Lin (1991), doi:10.1109/18.61115.
    """
    p, q, bounds = checked_pair(probabilities, others, indptr)
    middle = p / 2 + q / 2
    # The midpoint of subnormal numbers can round to 0, but it must be above 0 wherever p or q is.
    middle = np.maximum(middle, np.maximum(p, q) / 2)
    safe = np.where(middle > 0, middle, np.maximum(p, q))
    both = kl_divergence(p, safe, bounds) + kl_divergence(q, safe, bounds)
    return np.maximum(both / 2, 0.0)  # rounding can make it negative for equal distributions
