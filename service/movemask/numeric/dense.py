"""The dense `[B, A]` forms: logits and a legal_mask (True = legal) in, `[B, A]` out, 0 where illegal.

Each gathers the legal logits, calls the ragged kernel and scatters the result, so dense and ragged results are bitwise
equal, and the value of an illegal logit never changes a result. A row without a legal slot stays 0. All raise
ValueError for shapes that do not fit, and InvalidLogits as `gather.gather_legal` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.numeric import absolute, checks, entmax, filters, softmax
from movemask.numeric.gather import gather_legal, ragged_of_mask
from movemask.numeric.ragged import Float, Index, row_of_each

Floating = NDArray[np.floating]


def masked_softmax(
    logits: ArrayLike, legal_mask: ArrayLike, temperature: ArrayLike = 1.0, *, keep_dtype: bool = False
) -> Floating:
    """`softmax.softmax` over the legal slots."""
    return _applied(lambda z, indptr: softmax.softmax(z, indptr, temperature), logits, legal_mask, keep_dtype)


def masked_log_softmax(
    logits: ArrayLike, legal_mask: ArrayLike, temperature: ArrayLike = 1.0, *, keep_dtype: bool = False
) -> Floating:
    """`softmax.log_softmax` over the legal slots; -inf where illegal."""

    def kernel(z: Float, indptr: Index) -> Floating:
        return softmax.log_softmax(z, indptr, temperature)

    return _applied(kernel, logits, legal_mask, keep_dtype, elsewhere=-np.inf)


def masked_softmax_one(
    logits: ArrayLike, legal_mask: ArrayLike, temperature: ArrayLike = 1.0, *, keep_dtype: bool = False
) -> tuple[Floating, Float]:
    """`softmax.softmax_one` over the legal slots: `[B, A]` and abstention `[B]`."""
    legal = legal_logits(logits, legal_mask)
    probabilities, abstention = softmax.softmax_one(legal.values, legal.indptr, temperature)
    return legal.back(checks.result(probabilities, logits, keep_dtype)), abstention


def masked_sparsemax(
    logits: ArrayLike, legal_mask: ArrayLike, temperature: ArrayLike = 1.0, *, keep_dtype: bool = False
) -> Floating:
    """`entmax.sparsemax` over the legal slots."""
    return _applied(lambda z, indptr: entmax.sparsemax(z, indptr, temperature), logits, legal_mask, keep_dtype)


def masked_entmax15(
    logits: ArrayLike, legal_mask: ArrayLike, temperature: ArrayLike = 1.0, *, keep_dtype: bool = False
) -> Floating:
    """`entmax.entmax15` over the legal slots."""
    return _applied(lambda z, indptr: entmax.entmax15(z, indptr, temperature), logits, legal_mask, keep_dtype)


def masked_entmax(
    logits: ArrayLike,
    legal_mask: ArrayLike,
    alpha: ArrayLike,
    temperature: ArrayLike = 1.0,
    *,
    keep_dtype: bool = False,
) -> Floating:
    """`entmax.entmax` over the legal slots."""
    return _applied(lambda z, indptr: entmax.entmax(z, indptr, alpha, temperature), logits, legal_mask, keep_dtype)


def masked_absolute(logits: ArrayLike, legal_mask: ArrayLike, *, keep_dtype: bool = False) -> Floating:
    """`absolute.absolute` over the legal slots; ValueError for a legal logit that is not finite."""
    return _applied(absolute.absolute, logits, legal_mask, keep_dtype)


def masked_top_k(probabilities: ArrayLike, legal_mask: ArrayLike, k: int) -> NDArray[np.bool_]:
    """`filters.top_k` among the legal slots: bool `[B, A]`."""
    return _kept(lambda p, indptr: filters.top_k(p, indptr, k), probabilities, legal_mask)


def masked_top_p(probabilities: ArrayLike, legal_mask: ArrayLike, p: ArrayLike) -> NDArray[np.bool_]:
    """`filters.top_p` among the legal slots: bool `[B, A]`."""
    return _kept(lambda values, indptr: filters.top_p(values, indptr, p), probabilities, legal_mask)


def masked_min_p(probabilities: ArrayLike, legal_mask: ArrayLike, p: ArrayLike) -> NDArray[np.bool_]:
    """`filters.min_p` among the legal slots: bool `[B, A]`."""
    return _kept(lambda values, indptr: filters.min_p(values, indptr, p), probabilities, legal_mask)


def masked_logsumexp(logits: ArrayLike, legal_mask: ArrayLike) -> Float:
    """`softmax.logsumexp` over the legal slots: `[B]`."""
    legal = legal_logits(logits, legal_mask)
    return softmax.logsumexp(legal.values, legal.indptr)


def masked_statistic(statistic: Callable[[Float, Index], Float], policy: ArrayLike, legal_mask: ArrayLike) -> Float:
    """A function of `statistics` of one distribution, over the legal slots: policy `[B, A]` → `[B]`."""
    legal = legal_logits(policy, legal_mask)
    return statistic(legal.values, legal.indptr)


def masked_distance(
    distance: Callable[[Float, Float, Index], Float], policy: ArrayLike, other: ArrayLike, legal_mask: ArrayLike
) -> Float:
    """A function of `statistics` that compares two distributions, over the legal slots: policies `[B, A]` → `[B]`."""
    p, q = legal_logits(policy, legal_mask), legal_logits(other, legal_mask)
    return distance(p.values, q.values, p.indptr)


@dataclass(frozen=True, slots=True)
class Legal:
    """The legal logits `[N]` of a dense batch, with their slots."""

    values: Float
    indptr: Index
    slots: Index
    shape: tuple[int, int]

    def of(self, dense: Float) -> Float:
        """The values at the legal slots: `[B, A]` → `[N]`."""
        return np.asarray(dense[row_of_each(self.indptr), self.slots])

    def back(self, values: NDArray[np.generic], elsewhere: float = 0.0) -> NDArray[Any]:
        """The values at the legal slots and `elsewhere` at the illegal ones: `[N]` → `[B, A]` of the same dtype."""
        # np.zeros is lazy: only the pages that are written cost anything, so it is cheaper than np.full.
        result = np.zeros(self.shape, values.dtype)
        if elsewhere:
            result.fill(elsewhere)
        result.reshape(-1)[self.slots + row_of_each(self.indptr) * self.shape[1]] = values
        return result


def legal_logits(logits: ArrayLike, legal_mask: ArrayLike) -> Legal:
    """The legal logits of a dense batch."""
    array = checks.floats("logits", logits, 2)
    slots, indptr = ragged_of_mask(checks.legal_mask(legal_mask, array))
    values, indptr = gather_legal(array, slots, indptr)
    return Legal(values, indptr, slots, (array.shape[0], array.shape[1]))


def _applied(
    kernel: Callable[[Float, Index], Floating],
    logits: ArrayLike,
    legal_mask: ArrayLike,
    keep_dtype: bool,
    elsewhere: float = 0.0,
) -> Floating:
    legal = legal_logits(logits, legal_mask)
    return legal.back(checks.result(kernel(legal.values, legal.indptr), logits, keep_dtype), elsewhere)


def _kept(
    kernel: Callable[[Float, Index], NDArray[np.bool_]], probabilities: ArrayLike, legal_mask: ArrayLike
) -> NDArray[np.bool_]:
    legal = legal_logits(probabilities, legal_mask)
    return legal.back(kernel(legal.values, legal.indptr))
