"""Softmax and linear attention: against their definitions, and the counts of their operations."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

from study.attention import features, linear_attention, softmax_attention
from study.operations import Operations, operations_of_linear_attention, operations_of_softmax_attention

RNG = np.random.default_rng(5)
QUERIES, KEYS, VALUES = RNG.normal(size=(6, 4)), RNG.normal(size=(9, 4)), RNG.normal(size=(9, 3))


def test_softmax_attention_matches_scipy() -> None:
    weights = scipy.special.softmax(QUERIES @ KEYS.T / 2, axis=1)
    np.testing.assert_allclose(softmax_attention(QUERIES, KEYS, VALUES), weights @ VALUES, atol=1e-12)


def test_linear_attention_matches_weights_of_kernel() -> None:
    kernel = np.array([[features(q) @ features(k) for k in KEYS] for q in QUERIES])
    expected = kernel / kernel.sum(axis=1, keepdims=True) @ VALUES
    np.testing.assert_allclose(linear_attention(QUERIES, KEYS, VALUES), expected, atol=1e-12)
    assert (kernel > 0).all()


def test_attention_counts_by_hand() -> None:
    """Two tokens of width 3: four scores of three products each, and so on."""
    assert operations_of_softmax_attention(2, 3) == Operations(4, 0, 24, 8, 8 + 4 + 2 + 6, 2)
    assert operations_of_linear_attention(2, 3) == Operations(12, 0, 18 + 18 + 6, 6, 9 + 3 + 12 + 4, 12)


def test_shapes_that_do_not_fit_raise() -> None:
    with pytest.raises(ValueError, match="keys: shape"):
        softmax_attention(QUERIES, KEYS[:, :3], VALUES)
    with pytest.raises(ValueError, match="keys: shape"):
        linear_attention(QUERIES, KEYS, VALUES[:8])
