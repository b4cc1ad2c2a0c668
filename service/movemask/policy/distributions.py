"""Filters and statistics of distributions: probabilities `[N]` of the rows of a ragged batch, indptr `[B + 1]`.

A filter (top-k, top-p, min-p) returns the entries that it keeps, bool `[N]`. Combine filters with `&` and renormalise
the rest (`restricted`); the order of the filters does not matter. Every filter keeps a row's best entry.

Filters agree on the best entry only if they rank equal values alike. Different logits can have equal probabilities (at
a high temperature all are equal), so if `top_k` ranks logits, pass the ranking by logits (`falling`) to `top_p`.
Without a ranking, the earlier of equal values in a row comes first.

Statistics are float64 `[B]`, with 0 log 0 = 0. An empty row has 0.

Sources: Fan, Lewis & Dauphin (2018), arXiv:1805.04833 (top-k); Holtzman et al. (2019), arXiv:1904.09751 (top-p);
Nguyen et al. (2024), arXiv:2407.01082 (min-p).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.policy.ragged import (
    Float,
    Index,
    checked_indptr,
    checked_logits,
    checked_probabilities,
    checked_share,
    falling,
    filled,
    padded,
    row_lengths,
    row_max,
    row_of_each,
    row_sum,
    spread,
)

Mask = NDArray[np.bool_]


def top_k(values: ArrayLike, indptr: ArrayLike, k: int) -> Mask:
    """Marks the `k` highest entries of each row, bool `[N]`.

    values : logits or probabilities `[N]`

    Logits keep their order where probabilities underflow. Shorter rows are kept whole. Raises
    ValueError unless `k` is an integer of at least 1.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k: must be an integer of at least 1, got {k!r}")
    array, bounds, _ = checked_logits(values, indptr, all_low=True)
    ranks = np.arange(row_lengths(bounds).max(initial=0))
    return _of_ranked(
        np.broadcast_to(ranks < k, (len(bounds) - 1, len(ranks))), falling(array, bounds), bounds
    )


def top_p(
    probabilities: ArrayLike, indptr: ArrayLike, p: ArrayLike, order: Index | None = None
) -> Mask:
    """Marks the fewest most probable entries of each row that hold at least `p` of its mass, bool
    `[N]`.

    Parameters
    ----------
    p : in (0, 1], a number or `[B]`; 1 keeps all entries, zeros included
    order : intp `[N]`, a ranking of each row that never rises in probability, as from `falling`; by
        default, the probabilities' own ranking

    Raises ValueError for probabilities that are negative or not finite, and for another `p`.
    """
    values, bounds = checked_probabilities(probabilities, indptr)
    share = checked_share("p", p, len(bounds) - 1)[:, None]
    ranking = falling(values, bounds) if order is None else order
    cumulated = np.cumsum(padded(values[ranking], bounds, 0.0), axis=1)
    mask = np.broadcast_to(share == 1.0, cumulated.shape).copy()
    mask[:, :1] = True
    mask[:, 1:] |= cumulated[:, :-1] < share * cumulated[:, -1:]
    return _of_ranked(mask, ranking, bounds)


def min_p(probabilities: ArrayLike, indptr: ArrayLike, p: ArrayLike) -> Mask:
    """Marks the entries of each row with at least `p` times its largest probability, bool `[N]`.

    p : in (0, 1], a number or `[B]`
    """
    values, bounds = checked_probabilities(probabilities, indptr)
    share = checked_share("p", p, len(bounds) - 1)
    return np.asarray(values >= spread(row_max(values, bounds) * share, bounds))


def _of_ranked(by_rank: Mask, ranking: Index, indptr: Index) -> Mask:
    """Turns a mask by rank, bool `[B, longest row]`, into a mask of the entries, bool `[N]`."""
    keep = np.empty(len(ranking), dtype=bool)
    keep[ranking] = by_rank[filled(indptr)]
    return keep


def entropy(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """Returns the Shannon entropy in nats, `-sum p log p`.

    Source: Shannon, "A mathematical theory of communication" (1948),
    doi:10.1002/j.1538-7305.1948.tb01338.x.
    """
    p, bounds = checked_probabilities(probabilities, indptr)
    return row_sum(-p * np.log(np.where(p > 0, p, 1.0)), bounds) + 0.0  # no negative zero


def effective_number(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """Returns the effective number of moves, `exp(entropy)`.

    It is 1 for a certain move and `n` for `n` equal moves.

    Source: Hill number of order 1, Hill (1973), doi:10.2307/1934352.
    """
    bounds = checked_indptr(indptr, np.size(probabilities))
    return np.where(row_lengths(bounds) > 0, np.exp(entropy(probabilities, bounds)), 0.0)


def inverse_simpson(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """Returns the effective number of moves with less weight for rare moves, `1 / sum p²`.

    Source: Hill number of order 2; Simpson (1949), doi:10.1038/163688a0.
    """
    p, bounds = checked_probabilities(probabilities, indptr)
    squares = row_sum(p * p, bounds)
    return np.where(squares > 0, 1 / np.where(squares > 0, squares, 1.0), 0.0)


def gini(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """Returns the Gini coefficient: the mean difference of two moves over twice the mean.

    0 for `n` equal moves, `1 - 1/n` for a certain move.

    Source: Gini (1912); Sen, "On Economic Inequality" (1973).
    """
    p, bounds = checked_probabilities(probabilities, indptr)
    rows = row_of_each(bounds)
    ordered = p[np.lexsort((p, rows))]
    rank = np.arange(1, len(p) + 1) - bounds[rows]
    n = np.maximum(row_lengths(bounds), 1)
    total = row_sum(p, bounds)
    weighted = 2 * row_sum(rank * ordered, bounds) / np.where(total > 0, n * total, 1.0)
    return np.where(total > 0, weighted - (n + 1) / n, 0.0)


def maximum(probabilities: ArrayLike, indptr: ArrayLike) -> Float:
    """Returns the largest probability."""
    p, bounds = checked_probabilities(probabilities, indptr)
    return np.where(row_lengths(bounds) > 0, row_max(p, bounds), 0.0)


def kl_divergence(probabilities: ArrayLike, others: ArrayLike, indptr: ArrayLike) -> Float:
    """Returns `sum p log(p / q)` in nats; inf where `q` is 0 and `p` is not.

    Source: Kullback & Leibler (1951), doi:10.1214/aoms/1177729694.
    """
    p, q, bounds = checked_pair(probabilities, others, indptr)
    with np.errstate(divide="ignore"):
        terms = np.where(
            p > 0, p * (np.log(np.where(p > 0, p, 1.0)) - np.log(np.where(p > 0, q, 1.0))), 0.0
        )
    return row_sum(terms, bounds)


def checked_pair(
    probabilities: ArrayLike, others: ArrayLike, indptr: ArrayLike
) -> tuple[Float, Float, Index]:
    """Returns two distributions `[N]` in float64, and their indptr.

    Raises ValueError, as `checked_probabilities` does.
    """
    p, bounds = checked_probabilities(probabilities, indptr)
    q = np.asarray(others, dtype=np.float64)
    if q.shape != p.shape:
        raise ValueError(f"others: expected shape {p.shape}, got {q.shape}")
    return p, checked_probabilities(q, bounds)[0], bounds


def drawn(probabilities: ArrayLike, seed: int | None) -> int:
    """Returns the index of a move drawn by its probability, float64 `[N]`.

    The same seed draws the same move.

    The probabilities need not sum to 1; if all have underflowed to 0, each is equally likely.
    """
    cumulative = np.cumsum(probabilities)
    if not cumulative[-1]:
        cumulative = np.arange(1.0, len(cumulative) + 1)
    at = np.random.default_rng(seed).random() * np.nextafter(cumulative[-1], 0)
    return int(np.searchsorted(cumulative, at, side="right"))
