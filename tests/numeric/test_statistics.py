"""What a user would lose: the statistics of a policy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import example, given
from hypothesis import strategies as st

from movemask.numeric import distributions


@given(st.lists(st.lists(st.just(0.0) | st.floats(1e-9, 1), max_size=30).map(lambda w: [0.5, *w]), max_size=6))
@example([[1.0] * 4, [1.0, 0.0]])
def test_each_is_scipys_or_its_definition(weights: list[list[float]]) -> None:
    rows = [np.array(row) / np.sum(row) for row in weights]
    policy = np.concatenate([*rows, np.empty(0)]), np.cumsum([0, *map(len, rows)])
    entropy = [scipy.stats.entropy(row) for row in rows]
    pairs = [np.abs(row[:, None] - row[None, :]).sum() / (2 * len(row) * row.sum()) for row in rows]
    np.testing.assert_allclose(distributions.entropy(*policy), entropy, atol=1e-12)
    np.testing.assert_allclose(distributions.effective_number(*policy), np.exp(entropy), rtol=1e-12)
    np.testing.assert_allclose(distributions.inverse_simpson(*policy), [1 / (row**2).sum() for row in rows])
    np.testing.assert_allclose(distributions.gini(*policy), pairs, atol=1e-12)
    assert distributions.maximum(*policy).tolist() == [row.max() for row in rows]


def test_a_row_without_moves_has_none_of_anything_and_nothing_is_minus_zero() -> None:
    policy = np.array([1.0, 0.0]), np.array([0, 0, 2])
    for name in ("entropy", "effective_number", "maximum", "gini", "inverse_simpson"):
        found = getattr(distributions, name)(*policy)
        assert found[0] == 0
        assert not np.signbit(found).any()


#: Half of the smallest number is 0, and scipy then finds a distance of infinity.
SHARES = st.floats(0, 1, allow_subnormal=False)


@given(
    st.lists(st.tuples(SHARES, SHARES), min_size=1, max_size=20).filter(
        lambda pairs: sum(a for a, _ in pairs) > 1e-3 and sum(b for _, b in pairs) > 1e-3
    )
)
@example([(1.0, 0.0), (0.0, 1.0)])
@example([(0.5, 0.5), (0.5, 0.5)])
def test_distances_of_two_distributions_are_scipys(pairs: list[tuple[float, float]]) -> None:
    p, q = (np.array(side) / np.sum(side) for side in zip(*pairs, strict=True))
    indptr = np.array([0, len(p)])
    np.testing.assert_allclose(distributions.total_variation(p, q, indptr), [np.abs(p - q).sum() / 2])
    np.testing.assert_allclose(
        distributions.kl_divergence(p, q, indptr), [np.sum(scipy.special.rel_entr(p, q))], rtol=1e-9, atol=1e-12
    )
    middle = (p + q) / 2
    shannon = (np.sum(scipy.special.rel_entr(p, middle)) + np.sum(scipy.special.rel_entr(q, middle))) / 2
    found = distributions.jensen_shannon(p, q, indptr)
    np.testing.assert_allclose(found, [shannon], rtol=1e-9, atol=1e-12)
    assert 0 <= found[0] <= np.log(2) + 1e-12


def test_distances_of_no_distributions_are_0_and_other_shapes_are_refused() -> None:
    p, q, indptr = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([0, 2, 2])
    for distance in (distributions.total_variation, distributions.kl_divergence, distributions.jensen_shannon):
        assert distance(p, q, indptr)[1] == 0
    with pytest.raises(ValueError, match="others: expected shape"):
        distributions.kl_divergence(p, q[:1], indptr)


@pytest.mark.parametrize("bad", [np.nan, -0.1, np.inf])
def test_what_is_no_probability_is_refused_by_place(bad: float) -> None:
    for statistic in (distributions.entropy, distributions.gini, distributions.inverse_simpson, distributions.maximum):
        with pytest.raises(ValueError, match=r"probabilities: must be finite and at least 0, got .* at 1"):
            statistic(np.array([0.5, bad]), np.array([0, 2]))
