"""Softmax of sparse rows with four row maxima; CSR from coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from movemask.policy.softmax import softmax
from study.row_maxima import (
    SOURCE_EPSILON,
    Exact,
    Iterative,
    Naive,
    PNorm,
    RowMaximum,
    coalesced,
    power_weights,
    sparse_softmax,
)
from tests.policy.batches import Ragged, ragged

METHODS = [
    Exact(),
    Naive(),
    PNorm(2),
    PNorm(5),
    Iterative(2, 20),
    Iterative(1.1, 20),
    Iterative(2, 20, normalised=True),
]


@pytest.mark.parametrize("method", METHODS, ids=repr)
@given(batch=ragged(-5, 5))
def test_tame_values_give_softmax(method: Any, batch: Ragged) -> None:
    np.testing.assert_allclose(
        sparse_softmax(batch.values, batch.indptr, method), softmax(batch.values, batch.indptr), atol=1e-12
    )


def as_the_source(row: NDArray[np.float64], method: RowMaximum) -> NDArray[np.float32]:
    """A row in float32, as the study's `logsoftmax`, `rowpnorm` and `itmax` do it: its code adds 1e-9 to every row sum,
    and its text does not say so."""
    x, add, top = row.astype(np.float32), np.float32(1e-9), np.float32(0)
    match method:
        case PNorm(p):
            top = ((np.abs(x) ** np.float32(p)).sum() + add) ** np.float32(1 / p)
        case Iterative(p, k):
            weights = np.logaddexp(x, np.float32(0))
            weights = weights / (weights.sum() + add)
            for _ in range(k):
                weights = weights ** np.float32(p)
                weights = weights / (weights.sum() + add)
            top = (x * weights).sum() + add
    mass = np.exp(x - top)
    return np.asarray(mass / (mass.sum() + add))


@pytest.mark.parametrize("sigma", [1, 5, 20, 60])
@pytest.mark.parametrize(
    "method",
    [Naive(), PNorm(4), PNorm(40), Iterative(2, 20, normalised=True), Iterative(1.1, 20, normalised=True)],
    ids=repr,
)
def test_epsilon_matches_code_of_source(method: RowMaximum, sigma: int) -> None:
    rng = np.random.default_rng(5)  # a matrix of the study: 1000 rows, 6,000 elements
    batch = Ragged(tuple(rng.normal(0, sigma, n) for n in np.bincount(rng.integers(0, 1000, 6000), minlength=1000)))
    with np.errstate(all="ignore"):
        theirs = np.concatenate([as_the_source(row, method) for row in batch.rows])
    ours = sparse_softmax(batch.values, batch.indptr, method, epsilon=SOURCE_EPSILON, inside=np.float32)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-6)


@given(st.integers(0, 999), st.sampled_from([0, 3, 30]))
def test_coordinates_match_scipy_csr(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns, values = rng.integers(0, 6, size), rng.integers(0, 7, size), rng.normal(size=size)
    theirs = scipy.sparse.coo_array((values, (rows, columns)), shape=(6, 7)).tocsr()
    theirs.sum_duplicates()
    x, indptr, j = coalesced(rows, columns, values, 6, duplicates="sum")
    np.testing.assert_array_equal(indptr, theirs.indptr)
    np.testing.assert_array_equal(j, theirs.indices)
    np.testing.assert_allclose(x, theirs.data, atol=1e-15)


def test_power_weights_match_definition() -> None:
    values = np.array([0.5, 2.0, 1.0, 3.0, 3.0])
    for power in (1.0, 2.5):
        expected = [*(values[:3] ** power / (values[:3] ** power).sum()), 0.5, 0.5]
        np.testing.assert_allclose(power_weights(values, [0, 3, 5], power), expected, atol=1e-15)


@given(batch=ragged(0.1, 5, empty=False), ties=st.integers(1, 3))
def test_power_weights_become_one_hot_or_equal_for_ties(batch: Ragged, ties: int) -> None:
    """The lemma that the iterative maximum rests on: 1/n for each of n equal maxima, 0 elsewhere."""
    rows = [np.concatenate([row, np.full(ties, 1.5 * max(row))]) for row in batch.rows]
    expected = np.concatenate([np.where(row == row.max(), 1 / (row == row.max()).sum(), 0.0) for row in rows])
    indptr = np.cumsum([0, *map(len, rows)])
    np.testing.assert_allclose(power_weights(np.concatenate(rows), indptr, 200.0), expected, atol=1e-12)


def test_power_weights_of_element_not_positive_raise() -> None:
    with pytest.raises(ValueError, match="values: must be above 0, got 0"):
        power_weights([1.0, 0.0], [0, 2], 2.0)
