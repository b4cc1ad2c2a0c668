"""The dense `[B, A]` forms: logits and a legal_mask (True = legal) in, `[B, A]` out, 0 where illegal.

Each gathers the legal logits, calls the ragged kernel that it is named for and scatters the result, so dense and ragged
results are bitwise equal, and the value of an illegal logit never changes a result. Further arguments are the kernel's.
A row without a legal slot stays 0. The derivative by an illegal logit is 0. Where `targets` are int `[B]` they are
slots, which must be legal; where they are float `[B, A]` they are distributions over each row's legal slots. All raise
ValueError for shapes that do not fit, and InvalidLogits as `softmax.gather_legal` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.numeric import distributions, entmax, gradients, losses, softmax
from movemask.numeric.ragged import Float, Index, checked_floats, checked_mask, dense_indptr, row_of_each
from movemask.numeric.softmax import gather_legal, ragged_of_mask

P = ParamSpec("P")
N = TypeVar("N", bound=np.generic)
L = TypeVar("L")
R = TypeVar("R")


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


def _over_legal(
    kernel: Callable[Concatenate[ArrayLike, ArrayLike, P], NDArray[N]], elsewhere: float = 0.0
) -> Callable[Concatenate[ArrayLike, ArrayLike, P], NDArray[N]]:
    """The kernel on logits or probabilities `[B, A]` and a legal_mask, with `elsewhere` in the illegal slots."""

    def masked(values: ArrayLike, legal_mask: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> NDArray[N]:
        legal = legal_logits(values, legal_mask)
        picked = legal.values.astype(np.asarray(values).dtype, copy=False)  # their own dtype, for `keep_dtype`
        return legal.back(kernel(picked, legal.indptr, *args, **kwargs), elsewhere)

    masked.__doc__ = kernel.__doc__
    return masked


masked_softmax = _over_legal(softmax.softmax)
masked_log_softmax = _over_legal(softmax.log_softmax, elsewhere=-np.inf)
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
    legal = legal_logits(logits, legal_mask)
    probabilities, abstention = softmax.softmax_one(legal.values, legal.indptr, temperature)
    return legal.back(probabilities), abstention


def masked_statistic(statistic: Callable[[Float, Index], Float], policy: ArrayLike, legal_mask: ArrayLike) -> Float:
    """A function of `distributions` of one distribution, over the legal slots: policy `[B, A]` → `[B]`."""
    legal = legal_logits(policy, legal_mask)
    return statistic(legal.values, legal.indptr)


def masked_logsumexp(logits: ArrayLike, legal_mask: ArrayLike) -> Float:
    """`softmax.logsumexp` over the legal slots: `[B]`."""
    return masked_statistic(softmax.logsumexp, logits, legal_mask)


def masked_distance(
    distance: Callable[[Float, Float, Index], Float], policy: ArrayLike, other: ArrayLike, legal_mask: ArrayLike
) -> Float:
    """A function of `distributions` that compares two, over the legal slots: policies `[B, A]` → `[B]`."""
    p, q = legal_logits(policy, legal_mask), legal_logits(other, legal_mask)
    return distance(p.values, q.values, p.indptr)


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


def _vectors(vectors: ArrayLike, legal: Legal) -> Float:
    """Vectors `[B, A]` → those of the legal slots `[N]`."""
    return legal.of(_dense("vectors", vectors, legal))


def _against(
    kernel: Callable[Concatenate[Float, Index, NDArray[Any], P], R],
    at_legal: Callable[[ArrayLike, Legal], NDArray[Any]],
    back: Callable[[Legal, R], R],
) -> Callable[Concatenate[ArrayLike, ArrayLike, ArrayLike, P], R]:
    """The kernel on logits or probabilities `[B, A]`, a legal_mask, and targets or vectors, which `at_legal` turns into
    the kernel's; `back` turns its result into the dense one."""

    def masked(values: ArrayLike, legal_mask: ArrayLike, other: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> R:
        legal = legal_logits(values, legal_mask)
        return back(legal, kernel(legal.values, legal.indptr, at_legal(other, legal), *args, **kwargs))

    masked.__doc__ = kernel.__doc__
    return masked


def _with_gradient(legal: Legal, result: tuple[L, Float]) -> tuple[L, Float]:
    loss, gradient = result
    return loss, legal.back(gradient)


def _cross_entropy(
    values: Float, indptr: Index, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[Float, Float]:
    """`-log p(target)` of each row `[B]`, and its gradient `[B, A]`; targets int `[B]`.

    Raises ValueError for a target that is not legal and for a row without a legal slot, InvalidLogits as
    `gather_legal`.
    """
    arguments = (values, indptr, targets, temperature)
    return losses.cross_entropy(*arguments), losses.cross_entropy_gradient(*arguments)


def _soft_cross_entropy(
    values: Float, indptr: Index, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[Float, Float]:
    """`-Σ q log p` of each row `[B]`, and its gradient by the logits `[B, A]`; targets float `[B, A]`."""
    arguments = (values, indptr, targets, temperature)
    return losses.soft_cross_entropy(*arguments), losses.soft_cross_entropy_gradient(*arguments)


masked_cross_entropy = _against(_cross_entropy, _places, _with_gradient)
masked_mean_cross_entropy = _against(losses.mean_cross_entropy, _places, _with_gradient)
masked_fenchel_young = _against(losses.fenchel_young, _places, _with_gradient)
masked_soft_cross_entropy = _against(_soft_cross_entropy, _distribution, _with_gradient)
masked_mean_soft_cross_entropy = _against(losses.mean_soft_cross_entropy, _distribution, _with_gradient)
masked_probability_gradient = _against(losses.probability_gradient, _distribution, Legal.back)
masked_mean_probability_gradient = _against(losses.mean_probability_gradient, _distribution, Legal.back)
masked_temperature_loss = _against(losses.temperature_loss, _distribution, lambda _, loss: loss)
masked_absolute_jvp = _against(gradients.absolute_jvp, _vectors, Legal.back)
masked_absolute_vjp = _against(gradients.absolute_vjp, _vectors, Legal.back)


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
    g = gradients.entmax_weights(p.ravel(), dense_indptr(p), alpha)[0].reshape(p.shape)
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
    return kernel(p.ravel(), dense_indptr(p), v.ravel()).reshape(p.shape)
