"""A temperature trained by gradient descent: it reaches the fitted one, and stays above 0."""

from __future__ import annotations

import numpy as np

from movemask.policy.softmax import softmax
from movemask.policy.temperature import fitted_temperature
from study.learned_temperature import LearnedTemperature
from study.losses import one_hot

ROWS, LENGTH = 400, 6


def test_training_reaches_fitted_temperature() -> None:
    rng = np.random.default_rng(3)
    logits, indptr = 3 * rng.normal(size=ROWS * LENGTH), LENGTH * np.arange(ROWS + 1)
    policy = softmax(logits, indptr, 2.0).reshape(ROWS, LENGTH)
    played = np.array([rng.choice(LENGTH, p=row) for row in policy])
    learned = LearnedTemperature()
    losses = [learned.step(logits, indptr, one_hot(played, indptr), rate=0.5) for _ in range(200)]
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(learned.temperature, fitted_temperature(logits, indptr, played).temperature, rtol=1e-4)
    np.testing.assert_array_equal(learned.policy(logits, indptr), softmax(logits, indptr, learned.temperature))


def test_large_step_leaves_temperature_positive() -> None:
    learned = LearnedTemperature()
    learned.step([3.0, 0.0], [0, 2], [1.0, 0.0], rate=100.0)
    assert 0 < learned.temperature < 1
