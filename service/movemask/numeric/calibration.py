"""The temperature that minimises the cross-entropy of the played moves.

In `β = 1 / T` the mean cross-entropy is convex: its gradient is the mean of `E_p[z] - z_played`, its curvature that of
`Var_p[z]`. So Newton's method, safeguarded by a bracket, finds the only minimum. The curvature is the Fisher
information of one move, so the standard error of `β` is `1 / sqrt(B * curvature)`, and that of `T` is `T²` times it.

Sources: temperature scaling, Guo, Pleiss, Sun & Weinberger (2017), arXiv:1706.04599; standard error from the observed
information, Efron & Hinkley (1978), doi:10.1093/biomet/65.3.457.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from movemask.numeric import checks, losses
from movemask.numeric.ragged import Float, Index, row_sum, spread
from movemask.numeric.softmax import softmax

#: Bounds of the fit, wider than any known network needs. If the minimum lies beyond, the result is the bound.
COLDEST, HOTTEST = 0.05, 20.0

_STEPS = 200
_TOLERANCE = 1e-12  # of β, relative
_NEAR = 1e-6  # to a bound, relative: bisection comes this close without reaching it


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fitted temperature with its standard error, and the mean cross-entropy in nats at temperature 1 and after.

    The standard error assumes independent moves, which those of one game are not quite; it is inf where the moves say
    nothing about the temperature. `at_bound`: the minimum lies at or beyond COLDEST or HOTTEST.
    """

    temperature: float
    standard_error: float
    cross_entropy_before: float
    cross_entropy_after: float
    at_bound: bool


def fitted_temperature(legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike) -> Calibration:
    """The temperature fitted to a batch: legal_logits `[N]`, indptr `[B + 1]`, targets int `[B]` (indices in the rows).

    The result is between COLDEST and HOTTEST. ValueError for no rows, for shapes that do not fit, and for a
    played move whose logit is -inf.
    """
    z, bounds = checks.ragged("legal_logits", legal_logits, indptr)
    before = losses.cross_entropy(z, bounds, targets)
    if not len(before):
        raise ValueError("targets: nothing to fit a temperature to")
    if np.isinf(before).any():
        raise ValueError(f"targets: the logit of the move played in row {int(np.argmax(np.isinf(before)))} is -inf")
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
    after, _ = losses.mean_cross_entropy(z, bounds, targets, temperature)
    return Calibration(temperature, error, float(before.mean()), after, at_bound)


def _derivatives(z: Float, indptr: Index, played: Float, beta: float) -> tuple[float, float]:
    """First and second derivative by β of the mean cross-entropy."""
    p = np.asarray(softmax(z, indptr, 1 / beta))
    # Differences from the played logit, so that a gradient far smaller than the logits is not lost to rounding.
    difference = np.where(p > 0, z - spread(played, indptr), 0.0)
    mean = row_sum(p * difference, indptr)
    variance = row_sum(p * (difference - spread(mean, indptr)) ** 2, indptr)
    return float(np.mean(mean)), float(np.mean(variance))
