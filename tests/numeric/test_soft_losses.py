"""What a user would lose: losses against distributions, and slopes by probabilities and temperature that are slopes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from movemask.numeric import losses, softmax
from tests.numeric.batches import Ragged, ragged
from tests.numeric.test_derivatives import BATCH, FULL, slopes

Array = NDArray[Any]


def drawn(batch: Ragged, seed: int = 0, *, sparse: bool = True) -> Array:
    """A target distribution for each row, some with zeros."""
    rng = np.random.default_rng(seed)
    q = [rng.dirichlet(np.full(len(row), 0.4 if sparse else 5.0)) if len(row) else row for row in batch.rows]
    return np.concatenate([*q, np.empty(0)])


@given(ragged(-20, 20), st.integers(0, 99), st.floats(0.2, 5))
def test_soft_cross_entropy_is_what_scipy_makes_of_it(batch: Ragged, seed: int, temperature: float) -> None:
    q = drawn(batch, seed)
    by_hand = [
        -(target * scipy.special.log_softmax(row / temperature)).sum() if len(row) else 0.0
        for row, target in zip(batch.rows, batch.split(q), strict=True)
    ]
    found = losses.soft_cross_entropy(batch.values, batch.indptr, q, temperature)
    np.testing.assert_allclose(found, by_hand, atol=1e-9)


@pytest.mark.parametrize("temperature", [1.0, 0.5, np.array([3.0, 1.0, 0.7, 2.0])])
def test_its_gradient_by_the_logits_is_its_slope(temperature: Any) -> None:
    q = drawn(BATCH)

    def total(z: Array) -> Array:
        return np.array([losses.soft_cross_entropy(z, BATCH.indptr, q, temperature).sum()])

    gradient = losses.soft_cross_entropy_gradient(BATCH.values, BATCH.indptr, q, temperature)
    np.testing.assert_allclose(gradient, slopes(total, BATCH.values)[0], atol=1e-8)
    mean, mean_gradient = losses.mean_soft_cross_entropy(BATCH.values, BATCH.indptr, q, temperature)
    assert mean == pytest.approx(total(BATCH.values)[0] / 4)
    np.testing.assert_allclose(mean_gradient, gradient / 4)


def test_a_played_move_is_the_distribution_of_that_move() -> None:
    targets = np.array([2, 0, 3])
    y = losses.one_hot(targets, FULL.indptr)
    np.testing.assert_array_equal(y, [0, 0, 1, 1, 0, 0, 0, 1])
    soft, hard = (FULL.values, FULL.indptr, y, 2.0), (FULL.values, FULL.indptr, targets, 2.0)
    np.testing.assert_allclose(losses.cross_entropy(*hard), losses.soft_cross_entropy(*soft))
    gradient = losses.soft_cross_entropy_gradient(*soft)
    np.testing.assert_allclose(losses.cross_entropy_gradient(*hard), gradient, atol=1e-15)
    mean, mean_gradient = losses.mean_cross_entropy(*hard)
    assert mean == pytest.approx(losses.mean_soft_cross_entropy(*soft)[0])
    np.testing.assert_allclose(mean_gradient, gradient / 3, atol=1e-15)
    with pytest.raises(ValueError, match="targets: 3 in row 0, which has 3 entries"):
        losses.one_hot([3, 0, 0], FULL.indptr)


def test_the_gradient_by_the_probabilities_is_the_slope_of_the_logarithm() -> None:
    p = np.asarray(softmax.softmax(BATCH.values, BATCH.indptr))
    q = drawn(BATCH)
    gradient = losses.probability_gradient(p, BATCH.indptr, q)
    np.testing.assert_allclose(gradient, slopes(lambda s: np.array([-(q * np.log(s)).sum()]), p)[0], rtol=1e-6)
    np.testing.assert_allclose(losses.mean_probability_gradient(p, BATCH.indptr, q), gradient / 4)


def test_a_played_moves_gradient_is_minus_one_over_its_probability_and_nothing_else() -> None:
    p, indptr = np.array([0.25, 0.75, 1.0, 0.0, 0.0, 1.0]), np.array([0, 2, 4, 6])
    y = losses.one_hot([0, 0, 0], indptr)
    assert losses.probability_gradient(p, indptr, y).tolist() == [-4, 0, -1, 0, -np.inf, 0]
    np.testing.assert_allclose(losses.mean_probability_gradient(p[:4], indptr[:3], y[:4]), [-2, 0, -0.5, 0])


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5, np.array([0.5, 1.0, 2.0, 4.0])])
def test_the_derivatives_by_the_temperature_are_slopes(temperature: Any) -> None:
    q = drawn(BATCH)

    def loss(t: Any) -> Array:
        return losses.soft_cross_entropy(BATCH.values, BATCH.indptr, q, t)

    found = losses.temperature_loss(BATCH.values, BATCH.indptr, q, temperature)
    step = 1e-5
    np.testing.assert_array_equal(found.loss, loss(temperature))
    by_hand = (loss(temperature + step) - loss(temperature - step)) / (2 * step)
    np.testing.assert_allclose(found.by_temperature, by_hand, atol=1e-8)
    up, down = temperature * np.exp(step), temperature * np.exp(-step)
    np.testing.assert_allclose(found.by_log_temperature, (loss(up) - loss(down)) / (2 * step), atol=1e-8)


def test_large_logits_do_not_cancel_in_the_derivative_by_the_temperature() -> None:
    near = losses.temperature_loss(np.array([0.0, -1.0]), [0, 2], np.array([0.5, 0.5]), 2.0)
    far = losses.temperature_loss(np.array([2.0**40, 2.0**40 - 1]), [0, 2], np.array([0.5, 0.5]), 2.0)
    assert far.by_temperature == near.by_temperature
    lost = losses.temperature_loss(np.array([0.0, -np.inf]), [0, 2], np.array([0.5, 0.5]))
    assert (lost.loss[0], lost.by_temperature[0]) == (np.inf, -np.inf)


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (np.array([0.5, 0.4]), "targets: row 0 sums to 0.9, not 1"),
        (np.array([1.5, -0.5]), "targets: must be at least 0, got -0.5 at 1"),
        (np.array([np.nan, 1.0]), "targets: must be at least 0, got nan at 0"),
        (np.array([1, 0]), "targets: expected floats"),
    ],
)
def test_targets_that_are_no_distribution_are_refused_by_name(targets: Array, words: str) -> None:
    z, indptr = np.zeros(2), np.array([0, 2])
    for function in (losses.soft_cross_entropy, losses.soft_cross_entropy_gradient):
        with pytest.raises(ValueError, match=words):
            function(z, indptr, targets)
    with pytest.raises(ValueError, match=words):
        losses.probability_gradient(np.array([0.5, 0.5]), indptr, targets)
    with pytest.raises(ValueError, match=words):
        losses.temperature_loss(z, indptr, targets)


def test_the_mean_of_no_rows_is_refused() -> None:
    none = np.empty(0)
    with pytest.raises(ValueError, match="targets: the mean of no rows"):
        losses.mean_soft_cross_entropy(none, [0], none)
    with pytest.raises(ValueError, match="targets: the mean of no rows"):
        losses.mean_probability_gradient(none, [0], none)
