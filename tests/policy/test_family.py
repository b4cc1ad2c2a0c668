"""Softmax and related normalisers over ragged rows: definitions, edge cases, errors."""

from __future__ import annotations

from decimal import Decimal, getcontext
from typing import Any

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from movemask.policy import entmax, normalisation, softmax
from tests.policy.batches import KERNELS, Ragged, ragged, wide

Array = NDArray[Any]

SUM_TO_ONE = sorted(name for name, kernel in normalisation.KERNELS.items() if not kernel.abstains)


@pytest.mark.parametrize("which", SUM_TO_ONE)
@given(batch=ragged(-1e300, 1e300))
def test_rows_sum_to_one(which: str, batch: Ragged) -> None:
    p = KERNELS[which](batch.values, batch.indptr)
    assert (p >= 0).all()
    for own in batch.split(p):
        assert not len(own) or abs(own.sum() - 1) < 1e-12


@pytest.mark.parametrize("which", sorted(KERNELS))
@given(batch=ragged(empty=False), temperature=st.floats(0.1, 10))
def test_temperature_divides_logits(which: str, batch: Ragged, temperature: float) -> None:
    p = KERNELS[which](batch.values, batch.indptr, temperature)
    np.testing.assert_allclose(p, KERNELS[which](batch.values / temperature, batch.indptr), rtol=1e-9, atol=1e-12)
    each = np.full(len(batch.rows), temperature)
    np.testing.assert_allclose(KERNELS[which](batch.values, batch.indptr, each), p, rtol=1e-15)


@pytest.mark.parametrize("which", sorted(KERNELS))
@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf, np.array([1.0, -1.0, 1.0, 1.0]), np.ones(3)])
def test_invalid_temperatures_raise(which: str, temperature: Any) -> None:
    batch = wide()
    with pytest.raises(ValueError, match="temperature: "):
        KERNELS[which](batch.values, batch.indptr, temperature)


@pytest.mark.parametrize("which", sorted(KERNELS))
@pytest.mark.parametrize(
    ("logits", "indptr", "words"),
    [
        (np.zeros((2, 2)), [0, 2], "legal_logits: expected floats"),
        (np.zeros(2, dtype=int), [0, 2], "legal_logits: expected floats"),
        (np.zeros(2), [0, 3], "indptr: must rise from 0"),
        (np.zeros(2), [0, 2, 1, 2], "indptr: must rise"),
        (np.array([0.0, 1.0, np.nan, 2.0]), [0, 2, 4], "legal_logits: row 1 holds nan"),
        (np.array([0.0, 1.0, np.inf, 2.0]), [0, 2, 4], "legal_logits: row 1 holds inf"),
    ],
)
def test_invalid_shapes_and_logits_raise(which: str, logits: Array, indptr: list[int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        KERNELS[which](logits, indptr)


@given(batch=ragged(-700, 700))
def test_softmax_and_logsumexp_match_scipy(batch: Ragged) -> None:
    for name in ("softmax", "log_softmax"):
        expected = [getattr(scipy.special, name)(row) if len(row) else row for row in batch.rows]
        result = getattr(softmax, name)(batch.values, batch.indptr)
        np.testing.assert_allclose(result, np.concatenate(expected), rtol=1e-12, atol=1e-12 * (name == "log_softmax"))
    totals = [scipy.special.logsumexp(row) if len(row) else -np.inf for row in batch.rows]
    np.testing.assert_allclose(softmax.logsumexp(batch.values, batch.indptr), totals, rtol=1e-12, atol=1e-12)


def test_row_of_minus_infinity_raises() -> None:
    for which in SUM_TO_ONE:
        with pytest.raises(ValueError, match="legal_logits: row 0 holds -inf alone"):
            KERNELS[which](np.array([-np.inf, -np.inf]), np.array([0, 2]))
    assert softmax.softmax(np.array([-np.inf, 0.0]), np.array([0, 2])).tolist() == [0.0, 1.0]


def test_temperature_as_large_as_the_logits() -> None:
    z, indptr = np.array([1e308, -1e308]), np.array([0, 2])
    expected = scipy.special.softmax([1.0, -1.0])
    for temperature in (1e308, [1e308]):
        np.testing.assert_allclose(softmax.softmax(z, indptr, temperature), expected)
        np.testing.assert_allclose(np.exp(softmax.log_softmax(z, indptr, temperature)), expected)
        p, abstention = softmax.softmax_one(z, indptr, temperature)
        np.testing.assert_allclose([*p, *abstention], scipy.special.softmax([1.0, -1.0, 0.0]))


class TestSoftmaxOne:
    """A softmax with one more logit that is always 0."""

    @given(batch=ragged(-1e300, 1e300))
    def test_softmax_one_is_softmax_with_an_added_zero(self, batch: Ragged) -> None:
        p, abstention = softmax.softmax_one(batch.values, batch.indptr)
        beside = Ragged(tuple(np.append(row, 0.0) for row in batch.rows))
        for own, left, other in zip(
            batch.split(p), abstention, beside.split(softmax.softmax(beside.values, beside.indptr)), strict=True
        ):
            np.testing.assert_allclose([*own, left], other, rtol=1e-12, atol=1e-300)
            assert abs(own.sum() + left - 1) < 1e-12


class TestEntmax:
    """Sparse distributions, each found in two ways."""

    @given(batch=ragged(-4, 4))
    def test_exact_thresholds_match_bisection(self, batch: Ragged) -> None:
        for alpha, exact in ((2.0, entmax.sparsemax), (1.5, entmax.entmax15), (1.0, softmax.softmax)):
            np.testing.assert_allclose(
                exact(batch.values, batch.indptr), entmax.entmax(batch.values, batch.indptr, alpha), atol=1e-12
            )

    @given(batch=ragged(-3, 3, empty=False), alpha=st.sampled_from([1.3, 1.5, 2.0]))
    def test_entmax_satisfies_its_equation(self, batch: Ragged, alpha: float) -> None:
        """p = max(0, (alpha - 1) z - threshold) ** (1 / (alpha - 1)), with one threshold for a row."""
        kernels = {1.3: KERNELS["entmax"], 1.5: entmax.entmax15, 2.0: entmax.sparsemax}
        p = kernels[alpha](batch.values, batch.indptr)
        for own, z in zip(batch.split(p), batch.rows, strict=True):
            support = own > 0
            thresholds = (alpha - 1) * z[support] - own[support] ** (alpha - 1)
            np.testing.assert_allclose(thresholds, thresholds[0], atol=1e-9)
            assert ((alpha - 1) * z[~support] <= thresholds[0] + 1e-9).all()

    def test_entmax_alpha_per_row(self) -> None:
        z, indptr = np.array([1.0, 0.5, 1.0, 0.5, 1.0, 0.5]), np.array([0, 2, 4, 6])
        p = entmax.entmax(z, indptr, [1.0, 1.5, 2.0])
        np.testing.assert_allclose(p[:2], softmax.softmax(z[:2], [0, 2]))
        np.testing.assert_allclose(p[2:4], entmax.entmax15(z[:2], [0, 2]), atol=1e-14)
        np.testing.assert_allclose(p[4:], entmax.sparsemax(z[:2], [0, 2]), atol=1e-14)

    @pytest.mark.parametrize("alpha", [0.5, np.nan, np.inf, [1.5, 1.5]])
    def test_invalid_alpha_raises(self, alpha: Any) -> None:
        with pytest.raises(ValueError, match="alpha: "):
            entmax.entmax(np.zeros(2), [0, 2], alpha)


def exact(logits: list[float], alpha: float) -> list[float]:
    """α-entmax by its definition, in decimal numbers of 60 digits."""
    getcontext().prec = 60
    power = Decimal(alpha) - 1
    scaled = [(Decimal(logit) - Decimal(max(logits))) * power for logit in logits]

    def curve(threshold: Decimal) -> list[Decimal]:
        return [
            max(value - threshold, Decimal(0)) ** (1 / power) if value > threshold else Decimal(0) for value in scaled
        ]

    low, high = Decimal(-1), -(Decimal(len(logits)) ** -power)
    for _ in range(190):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(curve(middle)) >= 1 else (low, middle)
    return [float(value / sum(curve(low))) for value in curve(low)]


@pytest.mark.parametrize("alpha", [1 + 1e-15, 1 + 1e-9, 1.001, 1.1, 1.49, 1.51, 1.7, 2.0, 3.0])
def test_entmax_just_above_softmax(alpha: float) -> None:
    logits = [3.0, 2.5, 2.4999, 0.0, -1.0, -7.25]
    result = entmax.entmax(logits, [0, len(logits)], alpha)
    assert result == pytest.approx(exact(logits, alpha), abs=1e-14)
