"""Top-k, top-p and min-p as masks over the rows of a ragged batch of probabilities.

Each says which entries of a distribution it keeps. Filters are combined by `&` before what is left is normalised again
(`restricted`), so their order does not matter. Each keeps a row's best entry, so no row is emptied. Of equal
probabilities the earlier in the row is kept first.

Sources: Fan, Lewis & Dauphin (2018), arXiv:1805.04833 (top-k); Holtzman et al. (2019), arXiv:1904.09751 (top-p);
Nguyen et al. (2024), arXiv:2407.01082 (min-p).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.numeric import checks
from movemask.numeric.ragged import Float, Index, filled, padded, row_max, spread

Mask = NDArray[np.bool_]


def top_k(values: ArrayLike, indptr: ArrayLike, k: int) -> Mask:
    """The `k` highest of each row: logits or probabilities `[N]`, indptr `[B + 1]` → bool `[N]`.

    Logits keep their order where probabilities underflow. Shorter rows are kept whole. ValueError unless `k` is an
    integer of at least 1.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k: must be an integer of at least 1, got {k!r}")
    array, bounds, _ = checks.logits(values, indptr, all_low=True)
    return _rank(array, bounds) < k


def top_p(probabilities: ArrayLike, indptr: ArrayLike, p: ArrayLike) -> Mask:
    """The fewest most probable of each row that hold at least `p` of its mass; `p` in (0, 1], a number or `[B]`.

    1 keeps all, including zeros. Other arguments as in `top_k`.
    """
    values, bounds = checks.probabilities(probabilities, indptr)
    share = checks.share("p", p, len(bounds) - 1)
    rows = padded(values, bounds, -1.0)
    order = np.argsort(-rows, axis=1, kind="stable")
    ordered = np.maximum(np.take_along_axis(rows, order, axis=1), 0.0)
    before = np.cumsum(ordered, axis=1) - ordered
    total = ordered.sum(axis=1, keepdims=True)
    kept = (before < share[:, None] * total) | (share[:, None] == 1.0)
    kept[:, :1] = True
    keep = np.zeros(rows.shape, dtype=bool)
    np.put_along_axis(keep, order, kept, axis=1)
    return np.asarray(keep[filled(bounds)])


def min_p(probabilities: ArrayLike, indptr: ArrayLike, p: ArrayLike) -> Mask:
    """The entries of each row with at least `p` times its largest probability; `p` in (0, 1], a number or `[B]`."""
    values, bounds = checks.probabilities(probabilities, indptr)
    share = checks.share("p", p, len(bounds) - 1)
    return np.asarray(values >= spread(row_max(values, bounds) * share, bounds))


def _rank(values: Float, indptr: Index) -> NDArray[np.intp]:
    """The rank of each value in its row, 0 for the largest; of equal values the earlier is first: `[N]`."""
    order = np.argsort(-padded(values, indptr, -np.inf), axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(order.shape[1]), order.shape), axis=1)
    return np.asarray(rank[filled(indptr)])
