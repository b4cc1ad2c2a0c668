"""Statistics of each row of a ragged batch of distributions: probabilities `[N]`, indptr `[B + 1]` → `[B]`."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from service.numeric.ragged import Float, checked_indptr, row_max, row_sum


def entropy(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """Shannon entropy in nats, `-sum p log p` with `0 log 0 = 0`; 0 for an empty row.

    Source: Shannon, "A mathematical theory of communication" (1948), doi:10.1002/j.1538-7305.1948.tb01338.x.
    """
    values = np.asarray(probabilities, dtype=np.float64)
    terms = -values * np.log(np.where(values > 0, values, 1.0))
    return row_sum(terms, checked_indptr(indptr, values.size)) + 0.0  # no negative zero


def effective_number(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """Effective number of moves, `exp(entropy)`: 1 for a certain move, `n` for `n` equal ones; 0 for an empty row.

    Source: Hill numbers of order 1, Hill (1973), doi:10.2307/1934352.
    """
    bounds = checked_indptr(indptr, np.size(probabilities))
    return np.where(np.diff(bounds) > 0, np.exp(entropy(probabilities, bounds)), 0.0)


def maximum(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """Largest probability; 0 for an empty row."""
    values = np.asarray(probabilities, dtype=np.float64)
    bounds = checked_indptr(indptr, values.size)
    return np.where(np.diff(bounds) > 0, row_max(values, bounds), 0.0)
