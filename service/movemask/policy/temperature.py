"""Cross-entropy of the played moves, and the temperature that minimises it.

A row is one position: its legal logits. `targets` holds the index of the played move in each row.

The fit: as a function of `β = 1 / T` the mean cross-entropy is convex. Its gradient is the mean of `E_p[z] - z_played`,
its curvature the mean of `Var_p[z]`, so Newton's method inside a bracket finds the only minimum. The curvature is the
Fisher information of one move: the standard error of `β` is `1 / sqrt(B * curvature)`, that of `T` is `T²` times it.

Sources: temperature scaling, Guo, Pleiss, Sun & Weinberger (2017), arXiv:1706.04599; the standard error from the
observed information, Efron & Hinkley (1978), doi:10.1093/biomet/65.3.457.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from movemask.policy.ragged import Float, Index, checked_values, row_lengths, row_sum, spread
from movemask.policy.softmax import log_softmax, softmax


def cross_entropy(
    legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike, temperature: ArrayLike = 1.0
) -> Float:
    """Returns `-log p(target)` of each row in nats, `[B]`.

    Finite where `p` itself underflows; inf for a target whose logit is -inf.

    Parameters
    ----------
    legal_logits : float `[N]`, indptr : int `[B + 1]`, temperature : as in `softmax.softmax`
    targets : int `[B]`, the index of the target in its row

    Raises
    ------
    ValueError : arguments that do not fit, a target outside its row, a row without entries
    """
    places = target_places(targets, *checked_values("legal_logits", legal_logits, indptr))
    return -log_softmax(legal_logits, indptr, temperature)[places]


def target_places(targets: ArrayLike, values: Float, indptr: Index) -> NDArray[np.intp]:
    """Returns each row's target as an index in `[N]`: int `[B]` → intp `[B]`.

    Raises ValueError for a target outside its row.
    """
    index = np.asarray(targets)
    rows = len(indptr) - 1
    if index.shape != (rows,) or (index.size and index.dtype.kind not in "iu"):
        raise ValueError(
            f"targets: expected integers [B] = [{rows}], got {index.dtype} of shape {index.shape}"
        )
    wrong = (index < 0) | (index >= row_lengths(indptr))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"targets: {index[row]} in row {row}, which has {row_lengths(indptr)[row]} entries"
        )
    return np.asarray(indptr[:-1] + index, dtype=np.intp)


#: Bounds of the fit, wider than any known network needs. A minimum beyond them gives the bound.
COLDEST, HOTTEST = 0.05, 20.0

_STEPS = 200
_TOLERANCE = 1e-12  # relative change of β at which the fit ends
_NEAR = 1e-6  # relative distance to a bound; bisection comes this close without reaching it


@dataclass(frozen=True, slots=True)
class TemperatureFit:
    """The fitted temperature with its standard error, and the mean cross-entropy in nats before and after the fit.

    The standard error assumes independent moves; moves of one game are not quite independent. It is inf if the moves do
    not depend on the temperature. `at_bound` says that the minimum lies at or beyond COLDEST or HOTTEST.
    """

    temperature: float
    standard_error: float
    cross_entropy_before: float  # at temperature 1
    cross_entropy_after: float
    at_bound: bool


def fitted_temperature(
    legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike
) -> TemperatureFit:
    """Returns the temperature, from COLDEST to HOTTEST, with the least mean cross-entropy.

    Parameters
    ----------
    legal_logits : float `[N]`
    indptr : int `[B + 1]`
    targets : int `[B]`, the index of the played move in its row

    Raises
    ------
    ValueError : no rows, shapes that do not fit, or a played move whose logit is -inf
    """
    z, bounds = checked_values("legal_logits", legal_logits, indptr)
    before = cross_entropy(z, bounds, targets)
    if not len(before):
        raise ValueError("targets: nothing to fit a temperature to")
    if np.isinf(before).any():
        raise ValueError(
            f"targets: the logit of the move played in row {int(np.argmax(np.isinf(before)))} is -inf"
        )
    played = z[bounds[:-1] + np.asarray(targets)]
    low, high, beta = 1 / HOTTEST, 1 / COLDEST, 1.0
    for _ in range(_STEPS):
        gradient, curvature = _derivatives(z, bounds, played, beta)
        low, high = (beta, high) if gradient < 0 else (low, beta)
        step = beta - gradient / curvature if curvature > 0 else np.inf
        new_beta = step if low < step < high else (low + high) / 2
        if abs(new_beta - beta) <= _TOLERANCE * beta:
            break
        beta = new_beta
    temperature = 1 / beta
    _, curvature = _derivatives(z, bounds, played, beta)
    information = len(before) * curvature
    error = temperature**2 / math.sqrt(information) if information > 0 else math.inf
    at_bound = not COLDEST * (1 + _NEAR) < temperature < HOTTEST * (1 - _NEAR)
    after = float(cross_entropy(z, bounds, targets, temperature).mean())
    return TemperatureFit(temperature, error, float(before.mean()), after, at_bound)


def _derivatives(z: Float, indptr: Index, played: Float, beta: float) -> tuple[float, float]:
    """Returns the first and second derivative by β of the mean cross-entropy."""
    p = softmax(z, indptr, 1 / beta)
    # Differences from the played logit, so that a gradient far smaller than the logits is not lost to rounding.
    difference = np.where(p > 0, z - spread(played, indptr), 0.0)
    mean = row_sum(p * difference, indptr)
    variance = row_sum(p * (difference - spread(mean, indptr)) ** 2, indptr)
    return float(np.mean(mean)), float(np.mean(variance))
