"""The dense `[B, A]` forms: logits and a legal_mask (True = legal) in, `[B, A]` out, 0 where illegal.

Each gathers the legal logits, calls the ragged kernel and puts the result back, so dense and ragged agree bit
for bit, and an
illegal logit of any value leaves the result bitwise the same. A row with no legal slot stays 0. All raise
ValueError for shapes that do not fit and InvalidLogits as `gather.gather_legal` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.numeric import checks, entmax, filters, gradients, softmax
from service.numeric.gather import gather_legal, ragged_of_mask
from service.numeric.ragged import Float, Index, row_of_each

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
    legal = _legal(logits, legal_mask)
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


def masked_top_k(probabilities: ArrayLike, legal_mask: ArrayLike, k: int) -> NDArray[np.bool_]:
    """`filters.top_k` among the legal slots: bool `[B, A]`."""
    return _kept(lambda p, indptr: filters.top_k(p, indptr, k), probabilities, legal_mask)


def masked_top_p(probabilities: ArrayLike, legal_mask: ArrayLike, p: ArrayLike) -> NDArray[np.bool_]:
    """`filters.top_p` among the legal slots: bool `[B, A]`."""
    return _kept(lambda values, indptr: filters.top_p(values, indptr, p), probabilities, legal_mask)


def masked_min_p(probabilities: ArrayLike, legal_mask: ArrayLike, p: ArrayLike) -> NDArray[np.bool_]:
    """`filters.min_p` among the legal slots: bool `[B, A]`."""
    return _kept(lambda values, indptr: filters.min_p(values, indptr, p), probabilities, legal_mask)


def softmax_jacobian(policy: ArrayLike) -> Float:
    """`diag(s) - s sᵀ` of each dense row, masked or not (illegal slots hold 0): `[B, A]` → float64 `[B, A, A]`."""
    s = checks.floats("policy", policy, 2).astype(np.float64, copy=False)
    diagonal = s[:, :, None] * np.eye(s.shape[1])
    return np.asarray(diagonal - s[:, :, None] * s[:, None, :])


def softmax_jvp(policy: ArrayLike, vectors: ArrayLike) -> Float:
    """`J v` of each dense row without forming `J`: policy and vectors `[B, A]` → float64 `[B, A]`; VJP alike."""
    return _rowwise(gradients.softmax_jvp, policy, vectors)


def entmax_jvp(policy: ArrayLike, vectors: ArrayLike, alpha: ArrayLike) -> Float:
    """`J v` of each dense row of α-entmax; VJP alike."""
    return _rowwise(lambda p, indptr, v: gradients.entmax_jvp(p, indptr, v, alpha), policy, vectors)


def _rowwise(kernel: Callable[[Float, Index, Float], Float], policy: ArrayLike, vectors: ArrayLike) -> Float:
    p = checks.floats("policy", policy, 2).astype(np.float64, copy=False)
    v = checks.floats("vectors", vectors, 2).astype(np.float64, copy=False)
    if v.shape != p.shape:
        raise ValueError(f"vectors: expected shape {p.shape}, got {v.shape}")
    indptr = np.arange(0, p.size + 1, p.shape[1], dtype=np.intp) if p.size else np.zeros(len(p) + 1, dtype=np.intp)
    return kernel(p.ravel(), indptr, v.ravel()).reshape(p.shape)


@dataclass(frozen=True, slots=True)
class _Legal:
    """The legal logits `[N]` of a batch and where they go back to."""

    values: Float
    indptr: Index
    slots: Index
    shape: tuple[int, int]

    def back(self, values: NDArray[np.generic], elsewhere: float = 0.0) -> NDArray[Any]:
        """`[N]` → `[B, A]` of the dtype of the values, `elsewhere` where illegal."""
        # Zeros cost nothing until they are touched, and few are.
        result = np.zeros(self.shape, values.dtype)
        if elsewhere:
            result.fill(elsewhere)
        result.reshape(-1)[self.slots + row_of_each(self.indptr) * self.shape[1]] = values
        return result


def _legal(logits: ArrayLike, legal_mask: ArrayLike) -> _Legal:
    array = checks.floats("logits", logits, 2)
    slots, indptr = ragged_of_mask(checks.legal_mask(legal_mask, array))
    values, indptr = gather_legal(array, slots, indptr)
    return _Legal(values, indptr, slots, (array.shape[0], array.shape[1]))


def _applied(
    kernel: Callable[[Float, Index], Floating],
    logits: ArrayLike,
    legal_mask: ArrayLike,
    keep_dtype: bool,
    elsewhere: float = 0.0,
) -> Floating:
    legal = _legal(logits, legal_mask)
    return legal.back(checks.result(kernel(legal.values, legal.indptr), logits, keep_dtype), elsewhere)


def _kept(
    kernel: Callable[[Float, Index], NDArray[np.bool_]], probabilities: ArrayLike, legal_mask: ArrayLike
) -> NDArray[np.bool_]:
    legal = _legal(probabilities, legal_mask)
    return legal.back(kernel(legal.values, legal.indptr))
