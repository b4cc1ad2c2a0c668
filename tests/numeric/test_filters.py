"""What a user would lose: top-k, top-p and min-p that keep what they say, ties and edges included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from movemask.numeric import distributions
from movemask.numeric.ragged import restricted
from movemask.numeric.softmax import softmax
from tests.numeric.batches import Ragged, ragged, wide


def policies(batch: Ragged) -> Any:
    return softmax(batch.values, batch.indptr)


@given(ragged(-5, 5), st.integers(1, 15))
def test_top_k_keeps_the_k_most_probable(batch: Ragged, k: int) -> None:
    p = policies(batch)
    for own, keep in zip(batch.split(p), batch.split(distributions.top_k(p, batch.indptr, k)), strict=True):
        assert keep.sum() == min(k, len(own))
        assert not len(own) or keep.all() or own[keep].min() >= own[~keep].max()


@given(ragged(-5, 5), st.floats(0.01, 1))
def test_top_p_keeps_the_fewest_that_hold_p(batch: Ragged, p: float) -> None:
    probabilities = policies(batch)
    for own, keep in zip(
        batch.split(probabilities), batch.split(distributions.top_p(probabilities, batch.indptr, p)), strict=True
    ):
        if not len(own):
            continue
        assert own[keep].sum() >= p - 1e-12
        assert keep.all() or own[keep].min() >= own[~keep].max()
        assert keep.sum() == 1 or own[keep].sum() - own[keep].min() < p + 1e-12


@given(ragged(-5, 5), st.floats(0.01, 1))
def test_min_p_keeps_those_within_p_of_the_best(batch: Ragged, p: float) -> None:
    probabilities = policies(batch)
    for own, keep in zip(
        batch.split(probabilities), batch.split(distributions.min_p(probabilities, batch.indptr, p)), strict=True
    ):
        np.testing.assert_array_equal(keep, own >= p * own.max(initial=0))


@given(ragged(-5, 5, empty=False), st.integers(1, 5), st.floats(0.01, 1), st.floats(0.01, 1))
def test_composed_they_never_empty_a_row(batch: Ragged, k: int, p: float, low: float) -> None:
    probabilities = policies(batch)
    keep = distributions.top_k(probabilities, batch.indptr, k)
    keep &= distributions.top_p(probabilities, batch.indptr, p)
    keep &= distributions.min_p(probabilities, batch.indptr, low)
    indptr = restricted(batch.indptr, keep)
    assert (np.diff(indptr) >= 1).all()
    assert indptr[-1] == keep.sum()
    for own in np.split(softmax(batch.values[keep], indptr), indptr[1:-1]):
        assert abs(own.sum() - 1) < 1e-12


def test_ties_keep_the_earlier() -> None:
    p, indptr = np.full(4, 0.25), np.array([0, 4])
    assert distributions.top_k(p, indptr, 2).tolist() == [True, True, False, False]
    assert distributions.top_p(p, indptr, 0.5).tolist() == [True, True, False, False]
    assert distributions.top_p(p, indptr, 0.51).tolist() == [True, True, True, False]
    assert distributions.min_p(p, indptr, 1.0).all()


def test_p_of_1_keeps_all_zeros_too_and_218_moves() -> None:
    assert distributions.top_p(np.array([1.0, 0.0]), np.array([0, 2]), 1.0).all()
    batch = wide()
    assert distributions.top_p(policies(batch), batch.indptr, 1.0).all()


@pytest.mark.parametrize("k", [0, -1, 1.5, True, None])
def test_a_k_that_cannot_be_is_refused_by_name(k: Any) -> None:
    with pytest.raises(ValueError, match="k: must be an integer of at least 1, got"):
        distributions.top_k(np.ones(1), [0, 1], k)


@pytest.mark.parametrize("p", [0.0, -0.5, 1.0001, np.nan])
def test_a_p_outside_is_refused_by_name(p: float) -> None:
    for filtering in (distributions.top_p, distributions.min_p):
        with pytest.raises(ValueError, match="p: must be above 0 and at most 1, got"):
            filtering(np.ones(1), [0, 1], p)
