"""The dense `[B, A]` forms of `losses`, `soft_losses` and `gradients`.

The derivative by an illegal logit is 0. Here `targets` int `[B]` are slots, which must be legal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.numeric import absolute, checks, gradients, losses, soft_losses
from movemask.numeric.dense import Legal, legal_logits
from movemask.numeric.ragged import Float, Index
from movemask.numeric.soft_losses import TemperatureLoss


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
    values = soft_losses.soft_cross_entropy(legal.values, legal.indptr, q, temperature)
    gradient = soft_losses.soft_cross_entropy_gradient(legal.values, legal.indptr, q, temperature)
    return values, legal.back(gradient)


def masked_mean_soft_cross_entropy(
    logits: ArrayLike, legal_mask: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[float, Float]:
    """Mean over the batch of `masked_soft_cross_entropy`, and its gradient `(p - q) / (B T)`, `[B, A]`."""
    legal = legal_logits(logits, legal_mask)
    q = _distribution(targets, legal)
    mean, gradient = soft_losses.mean_soft_cross_entropy(legal.values, legal.indptr, q, temperature)
    return mean, legal.back(gradient)


def masked_probability_gradient(policy: ArrayLike, legal_mask: ArrayLike, targets: ArrayLike) -> Float:
    """Gradient of each row's cross-entropy by the probabilities, `-q / p`: policy and targets `[B, A]` → `[B, A]`."""
    legal = legal_logits(policy, legal_mask)
    return legal.back(soft_losses.probability_gradient(legal.values, legal.indptr, _distribution(targets, legal)))


def masked_mean_probability_gradient(policy: ArrayLike, legal_mask: ArrayLike, targets: ArrayLike) -> Float:
    """Gradient of the batch's mean cross-entropy by the probabilities, `-Q / (B P)`: `[B, A]`."""
    legal = legal_logits(policy, legal_mask)
    return legal.back(soft_losses.mean_probability_gradient(legal.values, legal.indptr, _distribution(targets, legal)))


def masked_temperature_loss(
    logits: ArrayLike, legal_mask: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> TemperatureLoss:
    """`soft_losses.temperature_loss` over the legal slots; targets float `[B, A]`, 0 where illegal."""
    legal = legal_logits(logits, legal_mask)
    return soft_losses.temperature_loss(legal.values, legal.indptr, _distribution(targets, legal), temperature)


def masked_absolute_jvp(logits: ArrayLike, legal_mask: ArrayLike, vectors: ArrayLike) -> Float:
    """`absolute.absolute_jvp` over the legal slots: logits and vectors `[B, A]` → `[B, A]`."""
    legal = legal_logits(logits, legal_mask)
    return legal.back(absolute.absolute_jvp(legal.values, legal.indptr, legal.of(_dense("vectors", vectors, legal))))


def masked_absolute_vjp(logits: ArrayLike, legal_mask: ArrayLike, vectors: ArrayLike) -> Float:
    """`absolute.absolute_vjp` over the legal slots: logits and vectors `[B, A]` → `[B, A]`."""
    legal = legal_logits(logits, legal_mask)
    return legal.back(absolute.absolute_vjp(legal.values, legal.indptr, legal.of(_dense("vectors", vectors, legal))))


def softmax_jacobian(policy: ArrayLike) -> Float:
    """`diag(s) - s sᵀ` of each dense row, masked or not (illegal slots hold 0): `[B, A]` → float64 `[B, A, A]`."""
    s = checks.floats("policy", policy, 2).astype(np.float64, copy=False)
    diagonal = s[:, :, None] * np.eye(s.shape[1])
    return np.asarray(diagonal - s[:, :, None] * s[:, None, :])


def softmax_jvp(policy: ArrayLike, vectors: ArrayLike) -> Float:
    """`J v` of each dense row without forming `J`: policy and vectors `[B, A]` → float64 `[B, A]`; VJP alike."""
    return _rowwise(gradients.softmax_jvp, policy, vectors)


def entmax_jacobian(policy: ArrayLike, alpha: ArrayLike) -> Float:
    """`diag(g) - g gᵀ / sum g` of each dense row of α-entmax: `[B, A]` → float64 `[B, A, A]`."""
    p = checks.floats("policy", policy, 2).astype(np.float64, copy=False)
    g = gradients.entmax_weights(p.ravel(), _rows(p), alpha)[0].reshape(p.shape)
    total = g.sum(axis=1)
    outer = g[:, :, None] * g[:, None, :] / np.where(total > 0, total, 1.0)[:, None, None]
    return np.asarray(g[:, :, None] * np.eye(p.shape[1]) - outer)


def entmax_jvp(policy: ArrayLike, vectors: ArrayLike, alpha: ArrayLike) -> Float:
    """`J v` of each dense row of α-entmax; VJP alike."""
    return _rowwise(lambda p, indptr, v: gradients.entmax_jvp(p, indptr, v, alpha), policy, vectors)


def _rowwise(kernel: Callable[[Float, Index, Float], Float], policy: ArrayLike, vectors: ArrayLike) -> Float:
    p = checks.floats("policy", policy, 2).astype(np.float64, copy=False)
    v = checks.floats("vectors", vectors, 2).astype(np.float64, copy=False)
    if v.shape != p.shape:
        raise ValueError(f"vectors: expected shape {p.shape}, got {v.shape}")
    return kernel(p.ravel(), _rows(p), v.ravel()).reshape(p.shape)


def _rows(p: Float) -> Index:
    """The indptr of a dense array, every slot of which counts."""
    return np.asarray(np.arange(len(p) + 1, dtype=np.intp) * p.shape[1])


def _dense(name: str, values: ArrayLike, legal: Legal) -> Float:
    """`values` in float64; ValueError unless they have the shape of the logits."""
    array = checks.floats(name, values, 2).astype(np.float64, copy=False)
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
