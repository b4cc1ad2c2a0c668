"""What a user would lose: a normaliser without exponentials that is a distribution, and its slopes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from movemask.numeric.gradients import absolute, absolute_jvp, absolute_vjp
from tests.numeric.batches import Ragged, ragged
from tests.numeric.test_derivatives import BATCH, slopes


@given(ragged(-1e6, 1e6))
def test_each_row_is_its_magnitudes_over_their_exact_sum(batch: Ragged) -> None:
    for row, found in zip(batch.rows, batch.split(absolute(batch.values, batch.indptr)), strict=True):
        total = sum(abs(Fraction(value)) for value in row.tolist())
        expected = [float(abs(Fraction(z)) / total) if total else 1 / len(row) for z in row.tolist()]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)


def test_rows_that_could_go_wrong() -> None:
    largest, smallest = np.finfo(np.float64).max, 5e-324
    values = np.array([0.0, -0.0, 0.0, 0.0, largest, -largest, smallest, -smallest, -7.0])
    np.testing.assert_array_equal(
        absolute(values, [0, 4, 4, 6, 8, 9]), [0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 0.5, 1.0]
    )


def test_its_products_are_those_of_its_jacobian() -> None:
    jacobian = slopes(lambda z: absolute(z, BATCH.indptr), BATCH.values)
    v = np.random.default_rng(0).normal(size=len(BATCH.values))
    np.testing.assert_allclose(absolute_jvp(BATCH.values, BATCH.indptr, v), jacobian @ v, atol=1e-8)
    np.testing.assert_allclose(absolute_vjp(BATCH.values, BATCH.indptr, v), jacobian.T @ v, atol=1e-8)
    assert not absolute_vjp(np.zeros(3), [0, 3], np.ones(3)).any()


@given(ragged(-9, 9))
def test_scaling_the_logits_changes_nothing_so_they_have_no_slope_along_themselves(batch: Ragged) -> None:
    np.testing.assert_allclose(absolute_jvp(batch.values, batch.indptr, batch.values), 0, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_logit_that_is_not_finite_is_refused_by_place(bad: float) -> None:
    with pytest.raises(ValueError, match=r"legal_logits: must be finite, got \S+ at 1"):
        absolute(np.array([1.0, bad]), [0, 2])
