"""Two other ways to restrict a softmax to the legal slots, dense `[B, A]` and ragged `[N]`, and where they fail.

| way | formula | fails where |
|---|---|---|
| gather (`dense.masked_softmax`) | softmax of the legal logits alone | nowhere; an illegal logit is not read |
| log-mask (`log_mask_softmax`) | softmax of `z + log m` | an illegal logit of NaN or +inf: `inf - inf` is NaN |
| softmax, mask, renormalise (`softmax_then_mask`) | `m s / sum m s`, `s = softmax(z)` | legal mass underflows: 0 / 0 |

The mistake `softmax(z * m)`, which gives an illegal move the weight `e^0`, is measured by `movemask.leakage.measure`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.policy.ragged import Float, Index, checked_floats, checked_values, row_max, row_sum, spread


def checked_mask(mask: ArrayLike, logits: ArrayLike) -> NDArray[np.bool_]:
    """A legal mask, bool `[B, A]`, True = legal. Raises ValueError unless it has the shape of the logits."""
    array = np.asarray(mask)
    if array.dtype != np.bool_ or array.ndim != 2:
        raise ValueError(f"legal_mask: expected bool [B, A], got {array.dtype} of shape {array.shape}")
    if array.shape != np.shape(logits):
        raise ValueError(f"legal_mask: shape {array.shape}, but logits have {np.shape(logits)}")
    return array


def dense_indptr(dense: NDArray[np.floating]) -> Index:
    """The indptr `[B + 1]` of a dense array `[B, A]` as rows of `A` values."""
    return np.asarray(np.arange(len(dense) + 1, dtype=np.intp) * dense.shape[1])


def log_mask_softmax(logits: ArrayLike, weights: ArrayLike) -> Float:
    """Softmax of `z + log w`. If the weights are a mask of 0 and 1, this is the definition of a masked softmax.

    Parameters
    ----------
    logits : float `[B, A]`
    weights : bool or float `[B, A]`, at least 0: a mask, or prior weights (`w e^z / sum w e^z`)

    Returns
    -------
    float `[B, A]`; 0 where the weight is 0, and a row of zeros if all its weights are 0. NaN in a row with an illegal
    logit of NaN or +inf.
    """
    z = checked_floats("logits", logits, 2)
    w = _checked_weights(weights, z.shape)
    return ragged_log_mask_softmax(z.ravel(), dense_indptr(z), w.ravel()).reshape(z.shape)


def ragged_log_mask_softmax(values: ArrayLike, indptr: ArrayLike, weights: ArrayLike) -> Float:
    """`log_mask_softmax` of each row of a ragged batch: values `[N]`, indptr `[B + 1]`, weights `[N]`."""
    z, bounds = checked_values("values", values, indptr)
    w = _checked_weights(weights, z.shape)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shifted = z + np.log(w)
        top = row_max(shifted, bounds)
        mass = np.exp(shifted - spread(np.where(top == -np.inf, 0.0, top), bounds))
        total = spread(row_sum(mass, bounds), bounds)
        return np.where(total == 0, 0.0, mass / total)


def softmax_then_mask(logits: ArrayLike, legal_mask: ArrayLike) -> Float:
    """Plain softmax, then 0 in the illegal slots, then each row divided by its sum.

    Correct while the legal mass does not underflow. If the best illegal logit is more than 745 above every legal logit
    (104 in float32), the legal mass is 0 and the row NaN. The NaN stays, because it shows how this way fails.

    Parameters
    ----------
    logits : float `[B, A]`
    legal_mask : bool `[B, A]`, True = legal
    """
    z = checked_floats("logits", logits, 2)
    mask = checked_mask(legal_mask, z)
    return ragged_softmax_then_mask(z.ravel(), dense_indptr(z), mask.ravel()).reshape(z.shape)


def ragged_softmax_then_mask(values: ArrayLike, indptr: ArrayLike, legal: ArrayLike) -> Float:
    """`softmax_then_mask` of each row of a ragged batch: values `[N]`, indptr `[B + 1]`, legal bool `[N]`."""
    z, bounds = checked_values("values", values, indptr)
    mask = np.asarray(legal)
    if mask.dtype != np.bool_ or mask.shape != z.shape:
        raise ValueError(f"legal: expected bool of shape {z.shape}, got {mask.dtype} of shape {mask.shape}")
    with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
        s = np.exp(z - spread(row_max(z, bounds), bounds))
        s /= spread(row_sum(s, bounds), bounds)
        legal_mass = np.where(mask, s, 0.0)
        policy = legal_mass / spread(row_sum(legal_mass, bounds), bounds)
    any_legal = spread(row_sum(mask.astype(np.float64), bounds), bounds) > 0
    return np.where(any_legal, policy, 0.0)


def _checked_weights(weights: ArrayLike, shape: tuple[int, ...]) -> Float:
    array = np.asarray(weights)
    if array.shape != shape or array.dtype.kind not in "bf":
        raise ValueError(f"weights: expected bool or floats of shape {shape}, got {array.dtype} of shape {array.shape}")
    result = array.astype(np.float64)
    if not (result >= 0).all():
        raise ValueError(f"weights: must be at least 0, got {result[~(result >= 0)][0]}")
    return result
