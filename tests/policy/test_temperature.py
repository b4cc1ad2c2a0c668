"""Cross-entropy of played moves, and the fitted temperature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from movemask.policy import temperature

Array = NDArray[Any]


def drawn(rows: int, truth: float) -> tuple[Array, Array, Array]:
    """Logits of rows of 9, their indptr, and moves drawn at a temperature."""
    rng = np.random.default_rng(4)
    z = rng.normal(size=(rows, 9)) * 2
    return z.ravel(), np.arange(0, z.size + 1, 9), np.argmax(z / truth + rng.gumbel(size=z.shape), axis=1)


@pytest.mark.parametrize("truth", [0.4, 1.0, 1.7, 6.0])
def test_fit_finds_the_true_temperature(truth: float) -> None:
    z, indptr, targets = drawn(20_000, truth)
    fit = temperature.fitted_temperature(z, indptr, targets)
    assert fit.temperature == pytest.approx(truth, rel=0.05)
    assert not fit.at_bound
    assert fit.cross_entropy_after <= fit.cross_entropy_before
    for near in (0.99, 1.01):
        loss = temperature.cross_entropy(z, indptr, targets, fit.temperature * near).mean()
        assert loss >= fit.cross_entropy_after


def test_fit_at_the_bounds() -> None:
    z, indptr = np.array([0.0, 5.0, 0.0, 5.0]), np.array([0, 2, 4])
    for played, bound in ((1, temperature.COLDEST), (0, temperature.HOTTEST)):
        fit = temperature.fitted_temperature(z, indptr, [played, played])
        assert fit.temperature == pytest.approx(bound)
        assert fit.at_bound


def test_standard_error_matches_repeated_fits() -> None:
    z, indptr, targets = drawn(1000, 1.6)
    fit = temperature.fitted_temperature(z, indptr, targets)
    rng, rows = np.random.default_rng(0), z.reshape(-1, 9)
    bootstrap = []
    for _ in range(300):
        again = rng.integers(0, 1000, 1000)
        bootstrap.append(temperature.fitted_temperature(rows[again].ravel(), indptr, targets[again]).temperature)
    # The deviation of 300 draws is known to about 1 / sqrt(600) = 4 %.
    assert fit.standard_error == pytest.approx(np.std(bootstrap), rel=0.15)
    assert abs(fit.temperature - 1.6) < 4 * fit.standard_error


def test_fit_without_information_raises() -> None:
    with pytest.raises(ValueError, match="targets: nothing to fit"):
        temperature.fitted_temperature(np.empty(0), [0], np.empty(0, dtype=int))
    with pytest.raises(ValueError, match="the move played in row 0 is -inf"):
        temperature.fitted_temperature(np.array([0.0, -np.inf]), [0, 2], [1])


def test_cross_entropy_finite_where_softmax_underflows() -> None:
    z, indptr = np.array([0.0, -5000.0]), np.array([0, 2])
    assert temperature.cross_entropy(z, indptr, [1]).tolist() == [5000.0]
    assert temperature.cross_entropy(np.array([0.0, -np.inf]), indptr, [1]).tolist() == [np.inf]


@pytest.mark.parametrize("bad", [[0, 0], [3, 0, 0], [-1, 0, 0], [0.0, 0.0, 0.0]])
def test_invalid_targets_raise(bad: Any) -> None:
    with pytest.raises(ValueError, match="targets: "):
        temperature.cross_entropy(np.zeros(8), [0, 3, 4, 8], np.array(bad))
