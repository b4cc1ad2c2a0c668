"""The dense `[B, A]` forms: logits and a legal_mask (True = legal) in, `[B, A]` out, 0 where illegal.

Each gathers the legal logits, calls the ragged kernel and scatters the result, so dense and ragged results are bitwise
equal, and the value of an illegal logit never changes a result. A row without a legal slot stays 0. The derivative by
an illegal logit is 0. Where `targets` are int `[B]` they are slots, which must be legal. All raise ValueError for
shapes that do not fit, and InvalidLogits as `softmax.gather_legal` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.numeric import distributions, entmax, gradients, losses, softmax
from movemask.numeric.losses import TemperatureLoss
from movemask.numeric.ragged import Float, Index, checked_floats, checked_mask, in_dtype, row_of_each
from movemask.numeric.softmax import gather_legal, ragged_of_mask

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
    return legal.back(in_dtype(probabilities, logits, keep_dtype)), abstention


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
    """`gradients.absolute` over the legal slots; ValueError for a legal logit that is not finite."""
    return _applied(gradients.absolute, logits, legal_mask, keep_dtype)


def masked_top_k(probabilities: ArrayLike, legal_mask: ArrayLike, k: int) -> NDArray[np.bool_]:
    """`distributions.top_k` among the legal slots: bool `[B, A]`."""
    return _kept(lambda p, indptr: distributions.top_k(p, indptr, k), probabilities, legal_mask)


def masked_top_p(probabilities: ArrayLike, legal_mask: ArrayLike, p: ArrayLike) -> NDArray[np.bool_]:
    """`distributions.top_p` among the legal slots: bool `[B, A]`."""
    return _kept(lambda values, indptr: distributions.top_p(values, indptr, p), probabilities, legal_mask)


def masked_min_p(probabilities: ArrayLike, legal_mask: ArrayLike, p: ArrayLike) -> NDArray[np.bool_]:
    """`distributions.min_p` among the legal slots: bool `[B, A]`."""
    return _kept(lambda values, indptr: distributions.min_p(values, indptr, p), probabilities, legal_mask)


def masked_logsumexp(logits: ArrayLike, legal_mask: ArrayLike) -> Float:
    """`softmax.logsumexp` over the legal slots: `[B]`."""
    legal = legal_logits(logits, legal_mask)
    return softmax.logsumexp(legal.values, legal.indptr)


def masked_statistic(statistic: Callable[[Float, Index], Float], policy: ArrayLike, legal_mask: ArrayLike) -> Float:
    """A function of `distributions` of one distribution, over the legal slots: policy `[B, A]` → `[B]`."""
    legal = legal_logits(policy, legal_mask)
    return statistic(legal.values, legal.indptr)


def masked_distance(
    distance: Callable[[Float, Float, Index], Float], policy: ArrayLike, other: ArrayLike, legal_mask: ArrayLike
) -> Float:
    """A function of `distributions` that compares two, over the legal slots: policies `[B, A]` → `[B]`."""
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
    array = checked_floats("logits", logits, 2)
    slots, indptr = ragged_of_mask(checked_mask(legal_mask, array))
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
    return legal.back(in_dtype(kernel(legal.values, legal.indptr), logits, keep_dtype), elsewhere)


def _kept(
    kernel: Callable[[Float, Index], NDArray[np.bool_]], probabilities: ArrayLike, legal_mask: ArrayLike
) -> NDArray[np.bool_]:
    legal = legal_logits(probabilities, legal_mask)
    return legal.back(kernel(legal.values, legal.indptr))


def masked_cross_entropy(
    logits: ArrayLike, legal_mask: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[Float, Float]:
    """`-log p(target)` of each row `[B]`, and its gradient `[B, A]`.

    Raises ValueError for a target that is not legal and for a row without a legal slot, InvalidLogits as
    `gather_legal`.
    """
    legal = legal_logits(logits, legal_mask)
    places = _places(targets, legal)
    values = losses.cross_entropy(legal.values, legal.indptr, places, temperature)
    return values, legal.back(losses.cross_entropy_gradient(legal.values, legal.indptr, places, temperature))


def masked_mean_cross_entropy(
    logits: ArrayLike, legal_mask: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[float, Float]:
    """Mean cross-entropy of the batch, and its gradient `(s - y) / (B T)`, `[B, A]`."""
    legal = legal_logits(logits, legal_mask)
    mean, gradient = losses.mean_cross_entropy(legal.values, legal.indptr, _places(targets, legal), temperature)
    return mean, legal.back(gradient)


def masked_fenchel_young(
    logits: ArrayLike, legal_mask: ArrayLike, targets: ArrayLike, alpha: ArrayLike
) -> tuple[Float, Float]:
    """The loss that belongs to α-entmax, `[B]`, and its gradient `[B, A]`."""
    legal = legal_logits(logits, legal_mask)
    values, gradient = losses.fenchel_young(legal.values, legal.indptr, _places(targets, legal), alpha)
    return values, legal.back(gradient)


def masked_soft_cross_entropy(
    logits: ArrayLike, legal_mask: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[Float, Float]:
    """`-Σ q log p` of each row `[B]`, and its gradient by the logits `[B, A]`.

    targets float `[B, A]`: a distribution over each row's legal slots; ValueError for mass on an illegal one.
    """
    legal = legal_logits(logits, legal_mask)
    q = _distribution(targets, legal)
    values = losses.soft_cross_entropy(legal.values, legal.indptr, q, temperature)
    gradient = losses.soft_cross_entropy_gradient(legal.values, legal.indptr, q, temperature)
    return values, legal.back(gradient)


def masked_mean_soft_cross_entropy(
    logits: ArrayLike, legal_mask: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[float, Float]:
    """Mean over the batch of `masked_soft_cross_entropy`, and its gradient `(p - q) / (B T)`, `[B, A]`."""
    legal = legal_logits(logits, legal_mask)
    q = _distribution(targets, legal)
    mean, gradient = losses.mean_soft_cross_entropy(legal.values, legal.indptr, q, temperature)
    return mean, legal.back(gradient)


def masked_probability_gradient(policy: ArrayLike, legal_mask: ArrayLike, targets: ArrayLike) -> Float:
    """Gradient of each row's cross-entropy by the probabilities, `-q / p`: policy and targets `[B, A]` → `[B, A]`."""
    legal = legal_logits(policy, legal_mask)
    return legal.back(losses.probability_gradient(legal.values, legal.indptr, _distribution(targets, legal)))


def masked_mean_probability_gradient(policy: ArrayLike, legal_mask: ArrayLike, targets: ArrayLike) -> Float:
    """Gradient of the batch's mean cross-entropy by the probabilities, `-Q / (B P)`: `[B, A]`."""
    legal = legal_logits(policy, legal_mask)
    return legal.back(losses.mean_probability_gradient(legal.values, legal.indptr, _distribution(targets, legal)))


def masked_temperature_loss(
    logits: ArrayLike, legal_mask: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> TemperatureLoss:
    """`losses.temperature_loss` over the legal slots; targets float `[B, A]`, 0 where illegal."""
    legal = legal_logits(logits, legal_mask)
    return losses.temperature_loss(legal.values, legal.indptr, _distribution(targets, legal), temperature)


def masked_absolute_jvp(logits: ArrayLike, legal_mask: ArrayLike, vectors: ArrayLike) -> Float:
    """`gradients.absolute_jvp` over the legal slots: logits and vectors `[B, A]` → `[B, A]`."""
    legal = legal_logits(logits, legal_mask)
    return legal.back(gradients.absolute_jvp(legal.values, legal.indptr, legal.of(_dense("vectors", vectors, legal))))


def masked_absolute_vjp(logits: ArrayLike, legal_mask: ArrayLike, vectors: ArrayLike) -> Float:
    """`gradients.absolute_vjp` over the legal slots: logits and vectors `[B, A]` → `[B, A]`."""
    legal = legal_logits(logits, legal_mask)
    return legal.back(gradients.absolute_vjp(legal.values, legal.indptr, legal.of(_dense("vectors", vectors, legal))))


def softmax_jacobian(policy: ArrayLike) -> Float:
    """`diag(s) - s sᵀ` of each dense row, masked or not (illegal slots hold 0): `[B, A]` → float64 `[B, A, A]`."""
    s = checked_floats("policy", policy, 2).astype(np.float64, copy=False)
    diagonal = s[:, :, None] * np.eye(s.shape[1])
    return np.asarray(diagonal - s[:, :, None] * s[:, None, :])


def softmax_jvp(policy: ArrayLike, vectors: ArrayLike) -> Float:
    """`J v` of each dense row without forming `J`: policy and vectors `[B, A]` → float64 `[B, A]`; VJP alike."""
    return _rowwise(gradients.softmax_jvp, policy, vectors)


def entmax_jacobian(policy: ArrayLike, alpha: ArrayLike) -> Float:
    """`diag(g) - g gᵀ / sum g` of each dense row of α-entmax: `[B, A]` → float64 `[B, A, A]`."""
    p = checked_floats("policy", policy, 2).astype(np.float64, copy=False)
    g = gradients.entmax_weights(p.ravel(), _rows(p), alpha)[0].reshape(p.shape)
    total = g.sum(axis=1)
    outer = g[:, :, None] * g[:, None, :] / np.where(total > 0, total, 1.0)[:, None, None]
    return np.asarray(g[:, :, None] * np.eye(p.shape[1]) - outer)


def entmax_jvp(policy: ArrayLike, vectors: ArrayLike, alpha: ArrayLike) -> Float:
    """`J v` of each dense row of α-entmax; VJP alike."""
    return _rowwise(lambda p, indptr, v: gradients.entmax_jvp(p, indptr, v, alpha), policy, vectors)


def _rowwise(kernel: Callable[[Float, Index, Float], Float], policy: ArrayLike, vectors: ArrayLike) -> Float:
    p = checked_floats("policy", policy, 2).astype(np.float64, copy=False)
    v = checked_floats("vectors", vectors, 2).astype(np.float64, copy=False)
    if v.shape != p.shape:
        raise ValueError(f"vectors: expected shape {p.shape}, got {v.shape}")
    return kernel(p.ravel(), _rows(p), v.ravel()).reshape(p.shape)


def _rows(p: Float) -> Index:
    """The indptr of a dense array, every slot of which counts."""
    return np.asarray(np.arange(len(p) + 1, dtype=np.intp) * p.shape[1])


def _dense(name: str, values: ArrayLike, legal: Legal) -> Float:
    """`values` in float64; ValueError unless they have the shape of the logits."""
    array = checked_floats(name, values, 2).astype(np.float64, copy=False)
    if array.shape != legal.shape:
        raise ValueError(f"{name}: expected shape {legal.shape}, got {array.shape}")
    return array


def _distribution(targets: ArrayLike, legal: Legal) -> Float:
    """Target distributions `[B, A]` → those of the legal slots `[N]`; ValueError for mass on an illegal one."""
    array = _dense("targets", targets, legal)
    picked = legal.of(array)
    elsewhere = array - legal.back(picked)
    if np.any(elsewhere != 0):
        row, slot = np.argwhere(elsewhere != 0)[0]
        raise ValueError(f"targets: slot {slot} in row {row} is not legal, but has {array[row, slot]}")
    return picked


def _places(targets: ArrayLike, legal: Legal) -> NDArray[np.intp]:
    """Slots `[B]` → indices among each row's legal slots; ValueError for one that is not legal."""
    slots = np.asarray(targets)
    rows = legal.shape[0]
    if slots.shape != (rows,) or (slots.size and slots.dtype.kind not in "iu"):
        raise ValueError(f"targets: expected integers [B] = [{rows}], got {slots.dtype} of shape {slots.shape}")
    # Rows ascend and so do the slots in them, so one search finds every target.
    size = legal.shape[1]
    flat = legal.slots + np.repeat(np.arange(rows) * size, np.diff(legal.indptr))
    wanted = np.arange(rows) * size + slots
    position = np.searchsorted(flat, wanted)
    illegal = np.append(flat, -1)[position] != wanted
    illegal |= (slots < 0) | (slots >= size)
    if illegal.any():
        row = int(np.argmax(illegal))
        raise ValueError(f"targets: slot {slots[row]} in row {row} is not legal")
    return np.asarray(position - legal.indptr[:-1], dtype=np.intp)
