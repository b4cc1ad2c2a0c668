"""Losses and gradients, against scipy and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from movemask.policy import entmax, softmax
from movemask.policy.temperature import cross_entropy
from study import gradients, losses
from tests.policy.batches import Ragged, ragged

Array = NDArray[Any]
STEP = 1e-6


def slopes(function: Callable[[Array], Array], z: Array) -> Array:
    """Jacobian of `function` at `z` by central differences: [outputs, inputs]."""
    columns = []
    for index in range(len(z)):
        step = np.zeros_like(z)
        step[index] = STEP
        columns.append((function(z + step) - function(z - step)) / (2 * STEP))
    return np.array(columns).T


BATCH = Ragged((np.array([0.3, -0.2, 1.1]), np.array([0.5]), np.array([]), np.array([-0.4, 0.9, 0.1, 0.25])))
MAPS: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "softmax": (softmax.softmax, gradients.softmax_jacobian),
    "softmax_one": (lambda z, i: softmax.softmax_one(z, i)[0], gradients.softmax_jacobian),
    "sparsemax": (entmax.sparsemax, lambda p, i: gradients.entmax_jacobian(p, i, 2.0)),
    "entmax15": (entmax.entmax15, lambda p, i: gradients.entmax_jacobian(p, i, 1.5)),
    "entmax(1.2)": (lambda z, i: entmax.entmax(z, i, 1.2), lambda p, i: gradients.entmax_jacobian(p, i, 1.2)),
}


@pytest.mark.parametrize("which", sorted(MAPS))
def test_jacobians_match_differences(which: str) -> None:
    function, jacobian = MAPS[which]
    by_hand = slopes(lambda z: function(z, BATCH.indptr), BATCH.values)
    np.testing.assert_allclose(jacobian(function(BATCH.values, BATCH.indptr), BATCH.indptr), by_hand, atol=1e-7)


@given(ragged(-3, 3), st.integers(0, 99))
def test_products_match_jacobians(batch: Ragged, seed: int) -> None:
    v = np.random.default_rng(seed).normal(size=len(batch.values))
    p = softmax.softmax(batch.values, batch.indptr)
    np.testing.assert_allclose(
        gradients.softmax_jvp(p, batch.indptr, v), gradients.softmax_jacobian(p, batch.indptr) @ v, atol=1e-12
    )
    for alpha in (1.0, 1.5, 2.0):
        sparse = entmax.entmax(batch.values, batch.indptr, alpha)
        formed = gradients.entmax_jacobian(sparse, batch.indptr, alpha)
        np.testing.assert_allclose(gradients.entmax_jvp(sparse, batch.indptr, v, alpha), formed @ v, atol=1e-12)
        np.testing.assert_allclose(gradients.entmax_vjp(sparse, batch.indptr, v, alpha), v @ formed, atol=1e-12)
    with pytest.raises(ValueError, match="vectors: expected shape"):
        gradients.softmax_jvp(p, batch.indptr, np.ones(len(p) + 1))


class TestAbsolute:
    """`|z| / Σ|z|`: a normaliser without exponentials."""

    @given(ragged(-1e6, 1e6))
    def test_rows_match_exact_sums(self, batch: Ragged) -> None:
        for row, result in zip(batch.rows, batch.split(gradients.absolute(batch.values, batch.indptr)), strict=True):
            total = sum(abs(Fraction(value)) for value in row.tolist())
            expected = [float(abs(Fraction(z)) / total) if total else 1 / len(row) for z in row.tolist()]
            np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-300)

    def test_zeros_extremes_and_empty_rows(self) -> None:
        most, least = np.finfo(np.float64).max, 5e-324
        result = gradients.absolute(np.array([0, -0.0, 0, 0, most, -most, least, -least, -7]), [0, 4, 4, 6, 8, 9])
        assert result.tolist() == [0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 0.5, 1.0]

    def test_products_match_jacobian(self) -> None:
        jacobian = slopes(lambda z: gradients.absolute(z, BATCH.indptr), BATCH.values)
        v = np.random.default_rng(0).normal(size=len(BATCH.values))
        np.testing.assert_allclose(gradients.absolute_jvp(BATCH.values, BATCH.indptr, v), jacobian @ v, atol=1e-8)
        np.testing.assert_allclose(gradients.absolute_vjp(BATCH.values, BATCH.indptr, v), jacobian.T @ v, atol=1e-8)
        assert not gradients.absolute_vjp(np.zeros(3), [0, 3], np.ones(3)).any()

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_infinite_logit_raises(self, bad: float) -> None:
        with pytest.raises(ValueError, match=r"legal_logits: must be finite, got \S+ at 1"):
            gradients.absolute(np.array([1.0, bad]), [0, 2])


FULL = Ragged(tuple(row for row in BATCH.rows if len(row)))
TARGETS = np.array([2, 0, 3])


def test_cross_entropy_of_underflowing_probability() -> None:
    z, indptr = np.array([0.0, -5000.0]), np.array([0, 2])
    assert cross_entropy(z, indptr, [1]).tolist() == [5000.0]
    assert losses.cross_entropy_gradient(z, indptr, [1]).tolist() == [1.0, -1.0]
    assert cross_entropy(np.array([0.0, -np.inf]), indptr, [1]).tolist() == [np.inf]


@pytest.mark.parametrize("alpha", [1.0, 1.2, 1.5, 2.0])
def test_fenchel_young_losses_and_gradients(alpha: float) -> None:
    values, gradient = losses.fenchel_young(FULL.values, FULL.indptr, TARGETS, alpha)
    summed = slopes(lambda z: np.array([losses.fenchel_young(z, FULL.indptr, TARGETS, alpha)[0].sum()]), FULL.values)[0]
    np.testing.assert_allclose(gradient, summed, atol=1e-7)
    assert (values >= 0).all()
    if alpha == 1.0:
        np.testing.assert_allclose(values, cross_entropy(FULL.values, FULL.indptr, TARGETS))


def drawn(batch: Ragged, seed: int = 0, *, sparse: bool = True) -> Array:
    """A target distribution for each row, some with zeros."""
    rng = np.random.default_rng(seed)
    q = [rng.dirichlet(np.full(len(row), 0.4 if sparse else 5.0)) if len(row) else row for row in batch.rows]
    return np.concatenate([*q, np.empty(0)])


@given(ragged(-20, 20), st.integers(0, 99), st.floats(0.2, 5))
def test_soft_cross_entropy_matches_scipy(batch: Ragged, seed: int, temperature: float) -> None:
    q = drawn(batch, seed)
    by_hand = [
        -(target * scipy.special.log_softmax(row / temperature)).sum() if len(row) else 0.0
        for row, target in zip(batch.rows, batch.split(q), strict=True)
    ]
    result = losses.soft_cross_entropy(batch.values, batch.indptr, q, temperature)
    np.testing.assert_allclose(result, by_hand, atol=1e-9)


@pytest.mark.parametrize("temperature", [1.0, 0.5, np.array([3.0, 1.0, 0.7, 2.0])])
def test_soft_cross_entropy_gradient_matches_differences(temperature: Any) -> None:
    q = drawn(BATCH)

    def total(z: Array) -> Array:
        return np.array([losses.soft_cross_entropy(z, BATCH.indptr, q, temperature).sum()])

    gradient = losses.soft_cross_entropy_gradient(BATCH.values, BATCH.indptr, q, temperature)
    np.testing.assert_allclose(gradient, slopes(total, BATCH.values)[0], atol=1e-8)
    mean, mean_gradient = losses.mean_soft_cross_entropy(BATCH.values, BATCH.indptr, q, temperature)
    assert mean == pytest.approx(total(BATCH.values)[0] / 4)
    np.testing.assert_allclose(mean_gradient, gradient / 4)


def test_one_hot_targets_match_played_moves() -> None:
    targets = np.array([2, 0, 3])
    y = losses.one_hot(targets, FULL.indptr)
    np.testing.assert_array_equal(y, [0, 0, 1, 1, 0, 0, 0, 1])
    soft, hard = (FULL.values, FULL.indptr, y, 2.0), (FULL.values, FULL.indptr, targets, 2.0)
    np.testing.assert_allclose(cross_entropy(*hard), losses.soft_cross_entropy(*soft))
    gradient = losses.soft_cross_entropy_gradient(*soft)
    np.testing.assert_allclose(losses.cross_entropy_gradient(*hard), gradient, atol=1e-15)
    mean, mean_gradient = losses.mean_cross_entropy(*hard)
    assert mean == pytest.approx(losses.mean_soft_cross_entropy(*soft)[0])
    np.testing.assert_allclose(mean_gradient, gradient / 3, atol=1e-15)
    with pytest.raises(ValueError, match="targets: 3 in row 0, which has 3 entries"):
        losses.one_hot([3, 0, 0], FULL.indptr)


def test_probability_gradient_matches_differences() -> None:
    p = np.asarray(softmax.softmax(BATCH.values, BATCH.indptr))
    q = drawn(BATCH)
    gradient = losses.probability_gradient(p, BATCH.indptr, q)
    np.testing.assert_allclose(gradient, slopes(lambda s: np.array([-(q * np.log(s)).sum()]), p)[0], rtol=1e-6)
    np.testing.assert_allclose(losses.mean_probability_gradient(p, BATCH.indptr, q), gradient / 4)
    p, indptr = np.array([0.25, 0.75, 1.0, 0.0, 1.0]), np.array([0, 2, 3, 5])
    result = losses.probability_gradient(p, indptr, losses.one_hot([0, 0, 0], indptr))
    assert result.tolist() == [-4, 0, -1, -np.inf, 0]


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5, np.array([0.5, 1.0, 2.0, 4.0])])
def test_temperature_derivatives_match_differences(temperature: Any) -> None:
    q = drawn(BATCH)

    def loss(t: Any) -> Array:
        return losses.soft_cross_entropy(BATCH.values, BATCH.indptr, q, t)

    result = losses.temperature_loss(BATCH.values, BATCH.indptr, q, temperature)
    step = 1e-5
    np.testing.assert_array_equal(result.loss, loss(temperature))
    by_hand = (loss(temperature + step) - loss(temperature - step)) / (2 * step)
    np.testing.assert_allclose(result.by_temperature, by_hand, atol=1e-8)
    up, down = temperature * np.exp(step), temperature * np.exp(-step)
    np.testing.assert_allclose(result.by_log_temperature, (loss(up) - loss(down)) / (2 * step), atol=1e-8)


def test_large_temperature_of_large_logits() -> None:
    z, indptr = np.array([1e308, -1e308]), np.array([0, 2])
    for temperature in (1e308, [1e308]):
        soft = losses.temperature_loss(z, indptr, [0.5, 0.5], temperature)
        assert soft.by_log_temperature == pytest.approx([-np.tanh(1)])
    assert losses.fenchel_young(z, indptr, [0], 1.5)[0].tolist() == [0.0]  # and nothing warns


def test_temperature_derivative_of_large_logits() -> None:
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
def test_invalid_targets_raise(targets: Array, words: str) -> None:
    z, indptr = np.zeros(2), np.array([0, 2])
    for function in (losses.soft_cross_entropy, losses.soft_cross_entropy_gradient):
        with pytest.raises(ValueError, match=words):
            function(z, indptr, targets)
    with pytest.raises(ValueError, match=words):
        losses.probability_gradient(np.array([0.5, 0.5]), indptr, targets)
    with pytest.raises(ValueError, match=words):
        losses.temperature_loss(z, indptr, targets)


def test_mean_of_no_rows_raises() -> None:
    none = np.empty(0)
    for mean in (losses.mean_soft_cross_entropy, losses.mean_probability_gradient):
        with pytest.raises(ValueError, match="targets: the mean of no rows"):
            mean(none, [0], none)
