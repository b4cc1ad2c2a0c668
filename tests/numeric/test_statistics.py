"""What a user would lose: the statistics of a policy."""

from __future__ import annotations

import numpy as np
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from service.numeric import statistics


@given(st.lists(st.lists(st.floats(1e-9, 1), min_size=1, max_size=30), min_size=1, max_size=6))
def test_entropy_is_scipys_and_the_effective_number_its_exponential(weights: list[list[float]]) -> None:
    rows = [np.array(row) / np.sum(row) for row in weights]
    indptr = np.cumsum([0, *map(len, rows)])
    values = np.concatenate(rows)
    expected = [scipy.stats.entropy(row) for row in rows]
    np.testing.assert_allclose(statistics.entropy(values, indptr), expected, atol=1e-12)
    np.testing.assert_allclose(statistics.effective_number(values, indptr), np.exp(expected), rtol=1e-12)
    assert statistics.maximum(values, indptr).tolist() == [row.max() for row in rows]


def test_equal_moves_certain_moves_zeros_and_empty_rows() -> None:
    values, indptr = np.array([0.25] * 4 + [1.0, 0.0]), np.array([0, 4, 6, 6])
    np.testing.assert_allclose(statistics.entropy(values, indptr), [np.log(4), 0, 0])
    np.testing.assert_allclose(statistics.effective_number(values, indptr), [4, 1, 0])
    np.testing.assert_allclose(statistics.maximum(values, indptr), [0.25, 1, 0])
    assert not np.signbit(statistics.entropy(values, indptr)).any()
