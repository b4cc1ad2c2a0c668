"""Distances of two distributions, against scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import example, given
from hypothesis import strategies as st

from movemask.policy import distributions
from study import distances

#: Half of the smallest number is 0, and scipy then finds a distance of infinity.
SHARES = st.floats(0, 1, allow_subnormal=False)


@given(
    st.lists(st.tuples(SHARES, SHARES), min_size=1, max_size=20).filter(
        lambda pairs: sum(a for a, _ in pairs) > 1e-3 and sum(b for _, b in pairs) > 1e-3
    )
)
@example([(1.0, 0.0), (0.0, 1.0)])
@example([(0.5, 0.5), (0.5, 0.5)])
def test_distances_match_scipy(pairs: list[tuple[float, float]]) -> None:
    p, q = (np.array(side) / np.sum(side) for side in zip(*pairs, strict=True))
    indptr = np.array([0, len(p)])
    np.testing.assert_allclose(distances.total_variation(p, q, indptr), [np.abs(p - q).sum() / 2])
    np.testing.assert_allclose(
        distributions.kl_divergence(p, q, indptr), [np.sum(scipy.special.rel_entr(p, q))], rtol=1e-9, atol=1e-12
    )
    middle = (p + q) / 2
    shannon = (np.sum(scipy.special.rel_entr(p, middle)) + np.sum(scipy.special.rel_entr(q, middle))) / 2
    result = distances.jensen_shannon(p, q, indptr)
    np.testing.assert_allclose(result, [shannon], rtol=1e-9, atol=1e-12)
    assert 0 <= result[0] <= np.log(2) + 1e-12


def test_distances_of_empty_rows_and_wrong_shapes() -> None:
    p, q, indptr = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([0, 2, 2])
    for distance in (distances.total_variation, distributions.kl_divergence, distances.jensen_shannon):
        assert distance(p, q, indptr)[1] == 0
    with pytest.raises(ValueError, match="others: expected shape"):
        distributions.kl_divergence(p, q[:1], indptr)
