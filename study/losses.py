"""Losses of a distribution over the legal moves and their gradients, for training.

The target is either the index of the played move in its row (`targets` int `[B]`; every row must have one), or a
distribution `q` over each row's legal slots (`targets` float `[N]`): another network's policy, search visits, a
smoothed label, or the played move (`one_hot`). `movemask.policy.temperature` has the cross-entropy of played moves.

Sources: Fenchel-Young losses, Blondel, Martins & Niculae, JMLR 21 (2020), arXiv:1901.02324; soft targets, Hinton,
Vinyals & Dean (2015), arXiv:1503.02531; a temperature trained in log space, Radford et al. (2021), arXiv:2103.00020,
section 2.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from movemask.policy import entmax
from movemask.policy.ragged import (
    Float,
    Index,
    checked_alpha,
    checked_probabilities,
    checked_values,
    row_max,
    row_sum,
    spread,
)
from movemask.policy.softmax import log_softmax, shifted, softmax
from movemask.policy.temperature import cross_entropy, target_places


def cross_entropy_gradient(
    legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> Float:
    """Gradient of each row's cross-entropy by its logits, `(s - y) / T`: float64 `[N]`."""
    values, bounds = checked_values("legal_logits", legal_logits, indptr)
    gradient = softmax(values, bounds, temperature)
    gradient[target_places(targets, values, bounds)] -= 1.0
    return gradient / spread(_temperatures(temperature, bounds), bounds)


def mean_cross_entropy(
    legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[float, Float]:
    """Mean cross-entropy of at least one row, and its gradient by the logits, `(s - y) / (B T)`: float64 `[N]`."""
    losses = cross_entropy(legal_logits, indptr, targets, temperature)
    if not len(losses):
        raise ValueError("targets: the mean of no rows")
    return float(losses.mean()), cross_entropy_gradient(legal_logits, indptr, targets, temperature) / len(losses)


def fenchel_young(
    legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike, alpha: ArrayLike
) -> tuple[Float, Float]:
    """The loss of α-entmax, `(p - y)·z + H_α(p)` with `p = α-entmax(z)`, and its gradient `p - y`.

    α = 2 is the sparsemax loss, α = 1 cross-entropy. The loss is at least 0, and 0 if all mass is on the target; for
    α > 1 this happens at finite logits.

    Returns
    -------
    losses float64 `[B]`, gradient float64 `[N]`
    """
    values, bounds = checked_values("legal_logits", legal_logits, indptr)
    at = target_places(targets, values, bounds)
    rows = len(bounds) - 1
    p = entmax.entmax(values, bounds, alpha)
    below = shifted(values, bounds, row_max(values, bounds), 1.0)
    # A move without mass adds nothing to p·z. Without this, 0 * -inf would be NaN.
    expected = row_sum(np.where(p > 0, p * np.where(p > 0, below, 0.0), 0.0), bounds)
    alphas = checked_alpha(alpha, rows)
    losses = expected - below[at] + _tsallis(p, bounds, alphas)
    p[at] -= 1.0
    return np.maximum(losses, 0.0), p


def _tsallis(p: Float, indptr: Index, alphas: Float) -> Float:
    """Tsallis' entropy of each row: `sum(p - p^α) / (α (α - 1))`, Shannon's at α = 1."""
    alpha = spread(alphas, indptr)
    shannon = row_sum(-p * np.log(np.where(p > 0, p, 1.0)), indptr)
    other = row_sum(p - p**alpha, indptr) / np.where(alphas == 1, 1.0, alphas * (alphas - 1))
    return np.where(alphas == 1, shannon, other)


@dataclass(frozen=True, slots=True)
class TemperatureLoss:
    """Cross-entropy of each row at a temperature, and its derivatives by the temperature: all float64 `[B]`.

    `loss` in nats; `by_temperature` is `dL/dT`, `by_log_temperature` is `dL/d(log T) = T dL/dT`. For a batch at one
    temperature, the derivative of the mean loss is the mean of these derivatives.
    """

    loss: Float
    by_temperature: Float
    by_log_temperature: Float


def one_hot(targets: ArrayLike, indptr: ArrayLike) -> Float:
    """Target distributions float64 `[N]` from the indices `[B]` of the played moves in their rows.

    Raises ValueError for an index outside its row.
    """
    size = int(np.asarray(indptr)[-1])
    values, bounds = checked_values("values", np.zeros(size), indptr)
    values[target_places(targets, values, bounds)] = 1.0
    return values


def soft_cross_entropy(
    legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> Float:
    """`-Σ q log p` of each row in nats, `[B]`; inf where `q` has mass on a logit of -inf, 0 for an empty row.

    Parameters
    ----------
    legal_logits : float `[N]`; as in `softmax.softmax`
    indptr : int `[B + 1]`
    targets : float `[N]`, `q`: at least 0, each row summing to 1 within 1e-6
    temperature : float, or float `[B]`; finite and above 0

    Raises
    ------
    ValueError : shapes that do not fit, an invalid temperature, or targets that are not distributions
    """
    log_p = log_softmax(legal_logits, indptr, temperature)
    q, bounds = _distributions(targets, indptr, log_p)
    return row_sum(-_times(q, log_p), bounds)


def soft_cross_entropy_gradient(
    legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> Float:
    """Gradient of each row's cross-entropy by its logits, `(p - q) / T`, `[N]`. Arguments as for the loss."""
    p = softmax(legal_logits, indptr, temperature)
    q, bounds = _distributions(targets, indptr, p)
    return np.asarray((p - q) / spread(_temperatures(temperature, bounds), bounds))


def mean_soft_cross_entropy(
    legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[float, Float]:
    """Mean cross-entropy of at least one row, and its gradient by the logits, `(p - q) / (B T)`: float64 `[N]`."""
    losses = soft_cross_entropy(legal_logits, indptr, targets, temperature)
    if not len(losses):
        raise ValueError("targets: the mean of no rows")
    return float(losses.mean()), soft_cross_entropy_gradient(legal_logits, indptr, targets, temperature) / len(losses)


def probability_gradient(probabilities: ArrayLike, indptr: ArrayLike, targets: ArrayLike) -> Float:
    """Gradient of each row's cross-entropy by the probabilities, `-q / p`: float64 `[N]`.

    For a played move it is -1 / p at the move and 0 elsewhere. It is 0 where `q` is 0, and -inf where `q` has mass and
    `p` has none. Its product with the Jacobian of softmax (`gradients.softmax_vjp`) is `p - q`.
    """
    p, bounds = checked_probabilities(probabilities, indptr)
    q, _ = _distributions(targets, bounds, p)
    with np.errstate(divide="ignore"):
        return np.where(q > 0, -q / np.where(q > 0, p, 1.0), 0.0)


def mean_probability_gradient(probabilities: ArrayLike, indptr: ArrayLike, targets: ArrayLike) -> Float:
    """Gradient of a batch's mean cross-entropy by the probabilities, `-Q / (B P)`: float64 `[N]`; B at least 1."""
    gradient = probability_gradient(probabilities, indptr, targets)
    rows = np.size(indptr) - 1
    if not rows:
        raise ValueError("targets: the mean of no rows")
    return np.asarray(gradient / rows)


def temperature_loss(
    legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> TemperatureLoss:
    """Cross-entropy of each row and its derivatives by the temperature. Arguments as in `soft_cross_entropy`.

    `dL/dT = (E_q[z] - E_p[z]) / T²`; -inf where the loss is inf. Descend in `log T`, so that no step makes the
    temperature negative.
    """
    loss = soft_cross_entropy(legal_logits, indptr, targets, temperature)
    z, bounds = checked_values("legal_logits", legal_logits, indptr)
    p = softmax(z, bounds, temperature)
    q = np.asarray(targets, dtype=np.float64)
    top = row_max(z, bounds)
    # Relative to the row's maximum, so that large logits do not cancel.
    temperatures = _temperatures(temperature, bounds)
    below = shifted(z, bounds, np.where(np.isfinite(top), top, 0.0), temperatures)
    by_log = row_sum(_times(q, below), bounds) - row_sum(_times(p, below), bounds)
    return TemperatureLoss(loss, by_log / temperatures, by_log)


def _times(weights: Float, values: Float) -> Float:
    """The product; 0 where the weight is 0, even if the value is -inf."""
    return np.where(weights > 0, weights * np.where(weights > 0, values, 0.0), 0.0)


def _temperatures(temperature: ArrayLike, indptr: Index) -> Float:
    return np.broadcast_to(np.asarray(temperature, dtype=np.float64), (len(indptr) - 1,))


def _distributions(targets: ArrayLike, indptr: ArrayLike, like: Float) -> tuple[Float, Index]:
    """Target distributions float64 `[N]` and the checked indptr. Raises ValueError unless shaped like `like`."""
    q, bounds = checked_values("targets", targets, indptr)
    if q.shape != like.shape:
        raise ValueError(f"targets: expected shape {like.shape}, got {q.shape}")
    if not (q >= 0).all():
        at = int(np.argmin(q >= 0))
        raise ValueError(f"targets: must be at least 0, got {q[at]} at {at}")
    total = row_sum(q, bounds)
    wrong = (bounds[:-1] < bounds[1:]) & ~(np.abs(total - 1) <= 1e-6)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"targets: row {row} sums to {total[row]}, not 1")
    return q, bounds
