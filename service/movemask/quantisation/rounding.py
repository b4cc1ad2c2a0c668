"""Rounds a layer's weights so that its outputs change least, not the weights themselves.

Columns are rounded one after the other, and the error of each is made up for by those still to come, as far as the
layer's inputs are correlated. Source: GPTQ, Frantar et al. (2022), arXiv:2210.17323, after Hassibi & Stork, "Second
order derivatives for network pruning" (1993). The mean of the error that is left goes into the bias: "bias correction",
Nagel et al., "Data-free quantization through weight equalization and bias correction" (2019), arXiv:1906.04721.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from movemask.numeric.ragged import Float

_DAMPING = 0.01  # of the mean variance, added to every input's: directions that calibration hardly saw stay put


class Moments:
    """Mean `[K]` and covariance `[K, K]` of a layer's inputs, added up from parts.

    Not `centred`, for a layer without a bias to correct: the mean is 0 and the covariance is about 0.
    """

    def __init__(self, size: int, *, centred: bool = True) -> None:
        self._count, self._centred = 0, centred
        self._sum = np.zeros(size)
        self._products = np.zeros((size, size))

    def add(self, rows: NDArray[np.float32]) -> None:
        """Adds inputs `[n, K]`."""
        self._count += len(rows)
        self._sum += rows.sum(axis=0, dtype=np.float64)
        self._products += rows.T @ rows

    @property
    def mean(self) -> Float:
        return self._sum / self._count if self._centred else np.zeros_like(self._sum)

    @property
    def covariance(self) -> Float:
        return np.asarray(self._products / self._count - np.outer(self.mean, self.mean))


@dataclass(frozen=True, slots=True)
class Rounded:
    """Weights `[M, K]` that are whole multiples of `scales` `[M]`, and what the bias `[M]` must be raised by."""

    weights: Float
    scales: Float
    bias: Float


def rounded(weights: Float, moments: Moments, largest: int) -> Rounded:
    """Weights `[M, K]` rounded to at most `largest` steps up and down, a scale for each row."""
    tops = np.abs(weights).max(axis=1)
    scales = np.where(tops > 0, tops, 1.0) / largest
    covariance = moments.covariance
    variances = np.diag(covariance)
    order = np.argsort(-variances)  # the inputs that matter most first, while most others can still make up for them
    damped = covariance + np.eye(len(covariance)) * (_DAMPING * variances.mean() + 1e-12)
    inverse = np.linalg.inv(damped[np.ix_(order, order)])
    factor = np.linalg.cholesky((inverse + inverse.T) / 2).T
    left = weights[:, order].astype(np.float64)
    found = np.empty_like(left)
    for column in range(left.shape[1]):
        found[:, column] = np.clip(np.round(left[:, column] / scales), -largest, largest) * scales
        error = (left[:, column] - found[:, column]) / factor[column, column]
        left[:, column:] -= np.outer(error, factor[column, column:])
    result = np.empty_like(found)
    result[:, order] = found
    return Rounded(result, scales, (weights - result) @ moments.mean)
