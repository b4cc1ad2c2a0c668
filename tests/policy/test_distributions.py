"""Statistics of distributions, and the filters top_k, top_p and min_p."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given
from hypothesis import strategies as st

from movemask.policy import distributions
from movemask.policy.softmax import softmax
from tests.policy.batches import Ragged, ragged


@given(st.lists(st.lists(st.just(0.0) | st.floats(1e-9, 1), max_size=30).map(lambda w: [0.5, *w]), max_size=6))
@example([[1.0] * 4, [1.0, 0.0]])
def test_statistics_match_scipy(weights: list[list[float]]) -> None:
    rows = [np.array(row) / np.sum(row) for row in weights]
    policy = np.concatenate([*rows, np.empty(0)]), np.cumsum([0, *map(len, rows)])
    entropy = [scipy.stats.entropy(row) for row in rows]
    pairs = [np.abs(row[:, None] - row[None, :]).sum() / (2 * len(row) * row.sum()) for row in rows]
    np.testing.assert_allclose(distributions.entropy(*policy), entropy, atol=1e-12)
    np.testing.assert_allclose(distributions.effective_number(*policy), np.exp(entropy), rtol=1e-12)
    np.testing.assert_allclose(distributions.inverse_simpson(*policy), [1 / (row**2).sum() for row in rows])
    np.testing.assert_allclose(distributions.gini(*policy), pairs, atol=1e-12)
    assert distributions.maximum(*policy).tolist() == [row.max() for row in rows]


def test_statistics_of_empty_row() -> None:
    policy = np.array([1.0, 0.0]), np.array([0, 0, 2])
    for name in ("entropy", "effective_number", "maximum", "gini", "inverse_simpson"):
        found = getattr(distributions, name)(*policy)
        assert found[0] == 0
        assert not np.signbit(found).any()


@pytest.mark.parametrize("bad", [np.nan, -0.1, np.inf])
def test_invalid_probabilities_raise(bad: float) -> None:
    for statistic in (distributions.entropy, distributions.gini, distributions.inverse_simpson, distributions.maximum):
        with pytest.raises(ValueError, match=r"probabilities: must be finite and at least 0, got .* at 1"):
            statistic(np.array([0.5, bad]), np.array([0, 2]))


def policies(batch: Ragged) -> Any:
    return softmax(batch.values, batch.indptr)


@given(ragged(-5, 5, empty=False), st.integers(1, 15), st.floats(0.01, 1))
def test_filters_match_their_definitions(batch: Ragged, k: int, p: float) -> None:
    found = policies(batch)
    kept = (
        distributions.top_k(found, batch.indptr, k),
        distributions.top_p(found, batch.indptr, p),
        distributions.min_p(found, batch.indptr, p),
    )
    for own, by_k, by_p, by_best in zip(batch.split(found), *map(batch.split, kept), strict=True):
        assert by_k.sum() == min(k, len(own))
        for keep in (by_k, by_p):
            assert keep.all() or own[keep].min() >= own[~keep].max()
        assert own[by_p].sum() >= p - 1e-12
        assert by_p.sum() == 1 or own[by_p].sum() - own[by_p].min() < p + 1e-12
        np.testing.assert_array_equal(by_best, own >= p * own.max())


def test_filters_keep_the_earlier_of_ties() -> None:
    p, indptr = np.full(4, 0.25), np.array([0, 4])
    assert distributions.top_k(p, indptr, 2).tolist() == [True, True, False, False]
    assert distributions.top_p(p, indptr, 0.5).tolist() == [True, True, False, False]
    assert distributions.top_p(p, indptr, 0.51).tolist() == [True, True, True, False]
    assert distributions.min_p(p, indptr, 1.0).all()


@pytest.mark.parametrize("k", [0, -1, 1.5, True, None])
def test_invalid_top_k_raises(k: Any) -> None:
    with pytest.raises(ValueError, match="k: must be an integer of at least 1, got"):
        distributions.top_k(np.ones(1), [0, 1], k)


@pytest.mark.parametrize("p", [0.0, -0.5, 1.0001, np.nan])
def test_invalid_top_p_and_min_p_raise(p: float) -> None:
    for filtering in (distributions.top_p, distributions.min_p):
        with pytest.raises(ValueError, match="p: must be above 0 and at most 1, got"):
            filtering(np.ones(1), [0, 1], p)


def test_kl_divergence_edge_cases() -> None:
    p, q = np.array([0.25, 0.75, 0.0, 1.0]), np.array([0.5, 0.5, 1.0, 0.0])
    found = distributions.kl_divergence(p, q, np.array([0, 2, 4, 4]))
    np.testing.assert_allclose(found, [0.25 * np.log(0.5) + 0.75 * np.log(1.5), np.inf, 0.0])
