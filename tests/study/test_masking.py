"""Three ways to mask: where they agree, and where two fail."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from movemask.policy import softmax
from study import dense, masking
from tests.policy.batches import Ragged, ragged


@given(batch=ragged(-300, 300), seed=st.integers(0, 99))
def test_ways_agree_without_underflow(batch: Ragged, seed: int) -> None:
    legal = np.random.default_rng(seed).random(len(batch.values)) < 0.6
    legal_rows = Ragged(tuple(row[own] for row, own in zip(batch.rows, batch.split(legal), strict=True)))
    expected = np.zeros(len(batch.values))
    expected[legal] = softmax.softmax(legal_rows.values, legal_rows.indptr)
    ways = (
        masking.ragged_log_mask_softmax(batch.values, batch.indptr, legal),
        masking.ragged_softmax_then_mask(batch.values, batch.indptr, legal),
    )
    np.testing.assert_allclose(ways[0], expected, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(ways[1], expected, rtol=1e-6, atol=1e-250)


def test_extremes_fail_except_for_gathering() -> None:
    mask = np.array([[True, True, False]])
    underflowing = np.array([[0.0, 1.0, 800.0]])
    assert np.isnan(masking.softmax_then_mask(underflowing, mask)).any()
    poisoned = np.array([[0.0, 1.0, np.inf]])
    assert np.isnan(masking.log_mask_softmax(poisoned, mask)).any()
    expected = scipy.special.softmax([0.0, 1.0])
    for z in (underflowing, poisoned):
        np.testing.assert_allclose(dense.masked_softmax(z, mask)[0, :2], expected)


def test_invalid_weights_and_masks_raise() -> None:
    with pytest.raises(ValueError, match="weights: must be at least 0, got -1"):
        masking.log_mask_softmax(np.zeros((1, 2)), np.array([[1.0, -1.0]]))
    with pytest.raises(ValueError, match="weights: expected bool or floats of shape"):
        masking.log_mask_softmax(np.zeros((1, 2)), np.ones((1, 3)))
    with pytest.raises(ValueError, match="legal: expected bool of shape"):
        masking.ragged_softmax_then_mask(np.zeros(2), [0, 2], np.ones(2))
