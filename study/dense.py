"""Dense `[B, A]` forms: logits and a legal_mask (True = legal) in, `[B, A]` out, 0 in the illegal slots.

A form is named after a ragged kernel: it gathers the legal logits, calls the kernel and scatters the result. Dense and
ragged results are therefore bitwise equal, and no illegal logit ever changes a result. Further arguments are the
kernel's. A row without a legal slot stays 0. The derivative by an illegal logit is 0.

`targets` int `[B]` are legal slots; `targets` float `[B, A]` are distributions over the legal slots. All forms raise
ValueError for shapes that do not fit, and InvalidLogits as `gather_legal` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.errors import InvalidLogits
from movemask.policy import distributions, entmax, softmax
from movemask.policy.ragged import Float, Index, checked_floats, checked_indptr, row_max, row_of_each
from movemask.policy.temperature import cross_entropy
from study import gradients, losses, mixed_precision
from study.masking import checked_mask, dense_indptr

P = ParamSpec("P")
N = TypeVar("N", bound=np.generic)
L = TypeVar("L")
R = TypeVar("R")


def gather_legal(logits: ArrayLike, slots: ArrayLike, indptr: ArrayLike) -> tuple[Float, Index]:
    """The legal logits of a batch. No other logit is read, so no illegal logit can reach a policy.

    Parameters
    ----------
    logits : float `[B, A]`, any float dtype
    slots : int `[N]`, the legal slots, row after row
    indptr : int `[B + 1]`

    Returns
    -------
    legal logits float64 `[N]`, and `indptr` checked

    Raises
    ------
    ValueError : a shape that does not fit, or a slot outside the vocabulary
    InvalidLogits : a legal logit that is NaN or +inf (the message names row and slot), or a row of only -inf
    """
    array = checked_floats("logits", logits, 2)
    index = np.asarray(slots)
    if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
        raise ValueError(f"slots: expected integers [N], got {index.dtype} of shape {index.shape}")
    bounds = checked_indptr(indptr, index.size)
    rows, size = array.shape
    if len(bounds) - 1 != rows:
        raise ValueError(f"indptr: {len(bounds) - 1} rows, but logits have {rows}")
    if not index.size:
        return np.empty(0), bounds
    if index.min() < 0 or index.max() >= size:
        raise ValueError(f"slots: must be in 0..{size - 1}, got {index.min()}..{index.max()}")
    picked = array[0][index] if rows == 1 else array[row_of_each(bounds), index]
    values = picked.astype(np.float64)
    # A NaN, a +inf or a row of only -inf makes the row's maximum non-finite.
    top = row_max(values, bounds)
    if not (math.isfinite(top[0]) if rows == 1 else np.isfinite(top[bounds[:-1] < bounds[1:]]).all()):
        raise _unusable(values, index, bounds)
    return values, bounds


def _unusable(values: Float, slots: NDArray[np.integer], indptr: Index) -> InvalidLogits:
    rows = row_of_each(indptr)
    unusable = np.isnan(values) | (values == np.inf)
    if unusable.any():
        first = int(np.argmax(unusable))
        return InvalidLogits(f"row {rows[first]}, slot {slots[first]}: the logit of a legal move is {values[first]}")
    all_low = (indptr[:-1] < indptr[1:]) & (row_max(values, indptr) == -np.inf)
    return InvalidLogits(f"row {int(np.argmax(all_low))}: the logit of every legal move is -inf")


def ragged_of_mask(legal_mask: NDArray[np.bool_]) -> tuple[Index, Index]:
    """legal_mask bool `[B, A]` → legal slots `[N]`, ascending within each row, and indptr `[B + 1]`."""
    rows, size = legal_mask.shape
    # np.flatnonzero is about six times as fast as np.nonzero of two dimensions.
    flat = np.flatnonzero(legal_mask)
    indptr = np.searchsorted(flat, np.arange(rows + 1) * size).astype(np.intp, copy=False)
    return flat - row_of_each(indptr) * size, indptr


@dataclass(frozen=True, slots=True)
class LegalLogits:
    """The legal logits `[N]` of a dense batch, with their slots."""

    values: Float
    indptr: Index
    slots: Index
    shape: tuple[int, int]

    @classmethod
    def of(cls, logits: ArrayLike, legal_mask: ArrayLike) -> LegalLogits:
        """The legal logits of a dense batch."""
        array = checked_floats("logits", logits, 2)
        slots, indptr = ragged_of_mask(checked_mask(legal_mask, array))
        values, indptr = gather_legal(array, slots, indptr)
        return cls(values, indptr, slots, (array.shape[0], array.shape[1]))

    def gathered(self, dense: Float) -> Float:
        """The entries of `dense` in the legal slots: `[B, A]` → `[N]`."""
        return np.asarray(dense[row_of_each(self.indptr), self.slots])

    def scattered(self, values: NDArray[np.generic], elsewhere: float = 0.0) -> NDArray[Any]:
        """`values` in the legal slots and `elsewhere` in the illegal slots: `[N]` → `[B, A]` of the same dtype."""
        # np.zeros is lazy: only written pages cost anything, so it is cheaper than np.full.
        result = np.zeros(self.shape, values.dtype)
        if elsewhere:
            result.fill(elsewhere)
        result.reshape(-1)[self.slots + row_of_each(self.indptr) * self.shape[1]] = values
        return result


def _over_legal(
    kernel: Callable[Concatenate[ArrayLike, ArrayLike, P], NDArray[N]], elsewhere: float = 0.0
) -> Callable[Concatenate[ArrayLike, ArrayLike, P], NDArray[N]]:
    """The kernel on logits or probabilities `[B, A]` and a legal_mask, with `elsewhere` in the illegal slots."""

    def masked(values: ArrayLike, legal_mask: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> NDArray[N]:
        legal = LegalLogits.of(values, legal_mask)
        in_own_dtype = legal.values.astype(np.asarray(values).dtype, copy=False)  # for `mixed_precision`
        return legal.scattered(kernel(in_own_dtype, legal.indptr, *args, **kwargs), elsewhere)

    masked.__doc__ = kernel.__doc__
    return masked


masked_softmax = _over_legal(softmax.softmax)
masked_log_softmax = _over_legal(softmax.log_softmax, elsewhere=-np.inf)
masked_mixed_softmax = _over_legal(mixed_precision.softmax)
masked_mixed_log_softmax = _over_legal(mixed_precision.log_softmax, elsewhere=-np.inf)
masked_sparsemax = _over_legal(entmax.sparsemax)
masked_entmax15 = _over_legal(entmax.entmax15)
masked_entmax = _over_legal(entmax.entmax)
masked_absolute = _over_legal(gradients.absolute)
masked_top_k = _over_legal(distributions.top_k)
masked_top_p = _over_legal(distributions.top_p)
masked_min_p = _over_legal(distributions.min_p)


def masked_softmax_one(
    logits: ArrayLike, legal_mask: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[NDArray[Any], Float]:
    """`softmax.softmax_one` over the legal slots: `[B, A]` and abstention `[B]`."""
    legal = LegalLogits.of(logits, legal_mask)
    probabilities, abstention = softmax.softmax_one(legal.values, legal.indptr, temperature)
    return legal.scattered(probabilities), abstention


def masked_statistic(statistic: Callable[[Float, Index], Float], policy: ArrayLike, legal_mask: ArrayLike) -> Float:
    """A statistic of one distribution (`policy.distributions`) over the legal slots: policy `[B, A]` → `[B]`."""
    legal = LegalLogits.of(policy, legal_mask)
    return statistic(legal.values, legal.indptr)


def masked_logsumexp(logits: ArrayLike, legal_mask: ArrayLike) -> Float:
    """`softmax.logsumexp` over the legal slots: `[B]`."""
    return masked_statistic(softmax.logsumexp, logits, legal_mask)


def masked_distance(
    distance: Callable[[Float, Float, Index], Float], policy: ArrayLike, other: ArrayLike, legal_mask: ArrayLike
) -> Float:
    """A distance of two distributions over the legal slots: policies `[B, A]` → `[B]`."""
    p, q = LegalLogits.of(policy, legal_mask), LegalLogits.of(other, legal_mask)
    return distance(p.values, q.values, p.indptr)


def _checked_dense(name: str, values: ArrayLike, legal: LegalLogits) -> Float:
    """`values` in float64. Raises ValueError unless they have the shape of the logits."""
    array = checked_floats(name, values, 2).astype(np.float64, copy=False)
    if array.shape != legal.shape:
        raise ValueError(f"{name}: expected shape {legal.shape}, got {array.shape}")
    return array


def _gathered_distributions(targets: ArrayLike, legal: LegalLogits) -> Float:
    """Target distributions `[B, A]` → `[N]`. Raises ValueError for mass on an illegal slot."""
    array = _checked_dense("targets", targets, legal)
    picked = legal.gathered(array)
    illegal = array - legal.scattered(picked)
    if np.any(illegal != 0):
        row, slot = np.argwhere(illegal != 0)[0]
        raise ValueError(f"targets: slot {slot} in row {row} is not legal, but has {array[row, slot]}")
    return picked


def _legal_indices(targets: ArrayLike, legal: LegalLogits) -> NDArray[np.intp]:
    """Slots `[B]` → their indices among each row's legal slots. Raises ValueError for an illegal slot."""
    slots = np.asarray(targets)
    rows = legal.shape[0]
    if slots.shape != (rows,) or (slots.size and slots.dtype.kind not in "iu"):
        raise ValueError(f"targets: expected integers [B] = [{rows}], got {slots.dtype} of shape {slots.shape}")
    # Rows ascend, and slots ascend within a row, so one search finds every target.
    size = legal.shape[1]
    flat = legal.slots + np.repeat(np.arange(rows) * size, np.diff(legal.indptr))
    targeted = np.arange(rows) * size + slots
    position = np.searchsorted(flat, targeted)
    illegal = np.append(flat, -1)[position] != targeted
    illegal |= (slots < 0) | (slots >= size)
    if illegal.any():
        row = int(np.argmax(illegal))
        raise ValueError(f"targets: slot {slots[row]} in row {row} is not legal")
    return np.asarray(position - legal.indptr[:-1], dtype=np.intp)


def _gathered_vectors(vectors: ArrayLike, legal: LegalLogits) -> Float:
    """Vectors `[B, A]` → `[N]`."""
    return legal.gathered(_checked_dense("vectors", vectors, legal))


def _with_targets(
    kernel: Callable[Concatenate[Float, Index, NDArray[Any], P], R],
    gather: Callable[[ArrayLike, LegalLogits], NDArray[Any]],
    scatter: Callable[[LegalLogits, R], R],
) -> Callable[Concatenate[ArrayLike, ArrayLike, ArrayLike, P], R]:
    """The kernel on logits or probabilities `[B, A]`, a legal_mask, and targets or vectors.

    `gather` turns dense targets or vectors into the kernel's; `scatter` turns the kernel's result into a dense result.
    """

    def masked(values: ArrayLike, legal_mask: ArrayLike, other: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> R:
        legal = LegalLogits.of(values, legal_mask)
        return scatter(legal, kernel(legal.values, legal.indptr, gather(other, legal), *args, **kwargs))

    masked.__doc__ = kernel.__doc__
    return masked


def _scattered_gradient(legal: LegalLogits, result: tuple[L, Float]) -> tuple[L, Float]:
    loss, gradient = result
    return loss, legal.scattered(gradient)


def _cross_entropy(
    values: Float, indptr: Index, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[Float, Float]:
    """`-log p(target)` of each row `[B]`, and its gradient `[B, A]`; targets int `[B]`.

    Raises ValueError for a target that is not legal and for a row without a legal slot, InvalidLogits as
    `gather_legal`.
    """
    arguments = (values, indptr, targets, temperature)
    return cross_entropy(*arguments), losses.cross_entropy_gradient(*arguments)


def _soft_cross_entropy(
    values: Float, indptr: Index, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[Float, Float]:
    """`-Σ q log p` of each row `[B]`, and its gradient by the logits `[B, A]`; targets float `[B, A]`."""
    arguments = (values, indptr, targets, temperature)
    return losses.soft_cross_entropy(*arguments), losses.soft_cross_entropy_gradient(*arguments)


masked_cross_entropy = _with_targets(_cross_entropy, _legal_indices, _scattered_gradient)
masked_mean_cross_entropy = _with_targets(losses.mean_cross_entropy, _legal_indices, _scattered_gradient)
masked_fenchel_young = _with_targets(losses.fenchel_young, _legal_indices, _scattered_gradient)
masked_soft_cross_entropy = _with_targets(_soft_cross_entropy, _gathered_distributions, _scattered_gradient)
masked_mean_soft_cross_entropy = _with_targets(
    losses.mean_soft_cross_entropy, _gathered_distributions, _scattered_gradient
)
masked_probability_gradient = _with_targets(losses.probability_gradient, _gathered_distributions, LegalLogits.scattered)
masked_mean_probability_gradient = _with_targets(
    losses.mean_probability_gradient, _gathered_distributions, LegalLogits.scattered
)
masked_temperature_loss = _with_targets(losses.temperature_loss, _gathered_distributions, lambda _, loss: loss)
masked_absolute_jvp = _with_targets(gradients.absolute_jvp, _gathered_vectors, LegalLogits.scattered)
masked_absolute_vjp = _with_targets(gradients.absolute_vjp, _gathered_vectors, LegalLogits.scattered)


def softmax_jacobian(policy: ArrayLike) -> Float:
    """The Jacobian `diag(s) - s sᵀ` of each dense row: `[B, A]`, illegal slots 0 → float64 `[B, A, A]`."""
    s = checked_floats("policy", policy, 2).astype(np.float64, copy=False)
    diagonal = s[:, :, None] * np.eye(s.shape[1])
    return np.asarray(diagonal - s[:, :, None] * s[:, None, :])


def softmax_jvp(policy: ArrayLike, vectors: ArrayLike) -> Float:
    """`J v` of each dense row without forming `J`: policy and vectors `[B, A]` → float64 `[B, A]`; equals `v J`."""
    return _rowwise(gradients.softmax_jvp, policy, vectors)


def entmax_jacobian(policy: ArrayLike, alpha: ArrayLike) -> Float:
    """The Jacobian `diag(g) - g gᵀ / sum g` of each dense row of α-entmax: `[B, A]` → float64 `[B, A, A]`."""
    p = checked_floats("policy", policy, 2).astype(np.float64, copy=False)
    g = gradients.entmax_weights(p.ravel(), dense_indptr(p), alpha)[0].reshape(p.shape)
    total = g.sum(axis=1)
    outer = g[:, :, None] * g[:, None, :] / np.where(total > 0, total, 1.0)[:, None, None]
    return np.asarray(g[:, :, None] * np.eye(p.shape[1]) - outer)


def entmax_jvp(policy: ArrayLike, vectors: ArrayLike, alpha: ArrayLike) -> Float:
    """`J v` of each dense row of α-entmax; equals `v J`."""
    return _rowwise(lambda p, indptr, v: gradients.entmax_jvp(p, indptr, v, alpha), policy, vectors)


def _rowwise(kernel: Callable[[Float, Index, Float], Float], policy: ArrayLike, vectors: ArrayLike) -> Float:
    p = checked_floats("policy", policy, 2).astype(np.float64, copy=False)
    v = checked_floats("vectors", vectors, 2).astype(np.float64, copy=False)
    if v.shape != p.shape:
        raise ValueError(f"vectors: expected shape {p.shape}, got {v.shape}")
    return kernel(p.ravel(), dense_indptr(p), v.ravel()).reshape(p.shape)
