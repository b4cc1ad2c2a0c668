"""What a user would lose: probabilities that are right, that sum to 1, and that no illegal logit can touch."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from movemask.errors import InvalidLogits
from movemask.numeric import dense, losses, softmax

Batch = tuple[NDArray[np.float64], NDArray[np.bool_]]

finite = st.floats(-1e300, 1e300, allow_subnormal=True)


@st.composite
def batches(draw: st.DrawFn, logit: st.SearchStrategy[float] = finite) -> Batch:
    """Logits [B, A] and a mask of the same shape; rows may be empty."""
    shape = (draw(st.integers(1, 5)), draw(st.integers(1, 40)))
    return draw(hnp.arrays(np.float64, shape, elements=logit)), draw(hnp.arrays(np.bool_, shape))


def by_definition(logits: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The definition: softmax of logits + log(mask), by scipy, row by row."""
    result = np.zeros(logits.shape)
    for row in range(len(logits)):
        if mask[row].any():
            with np.errstate(divide="ignore"):
                result[row] = scipy.special.softmax(logits[row] + np.log(mask[row]))
    return result


@given(batches(st.floats(-700, 700)))
def test_dense_is_softmax_of_logits_plus_log_mask(batch: Batch) -> None:
    np.testing.assert_allclose(dense.masked_softmax(*batch), by_definition(*batch), rtol=1e-12, atol=1e-300)


@given(batches(st.floats(-300, 300)), st.floats(0.05, 20))
def test_log_softmax_is_the_logarithm(batch: Batch, temperature: float) -> None:
    logits, mask = batch
    log_policy = dense.masked_log_softmax(logits, mask, temperature)
    np.testing.assert_allclose(np.exp(log_policy), dense.masked_softmax(logits, mask, temperature), rtol=1e-9)


def test_a_temperature_near_zero_gives_the_best_move_all() -> None:
    policy = dense.masked_softmax(np.array([[1.0, 2.0, 3.0]]), np.array([[True, True, False]]), 5e-324)
    assert policy.tolist() == [[0.0, 1.0, 0.0]]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_legal_logit_that_is_no_number_is_refused_by_slot(bad: float) -> None:
    logits: NDArray[np.float64] = np.zeros((2, 4))
    logits[1, 2] = bad
    with pytest.raises(InvalidLogits, match=r"row 1, slot 2: the logit of a legal move is (nan|inf)"):
        dense.masked_softmax(logits, np.ones((2, 4), dtype=bool))


def test_a_row_of_minus_infinity_alone_is_refused_but_one_move_of_it_is_not() -> None:
    mask = np.ones((1, 2), dtype=bool)
    assert dense.masked_softmax(np.array([[-np.inf, 0.0]]), mask).tolist() == [[0.0, 1.0]]
    with pytest.raises(InvalidLogits, match="row 0: the logit of every legal move is -inf"):
        dense.masked_softmax(np.array([[-np.inf, -np.inf]]), mask)


def test_a_temperature_as_large_as_the_logits_brings_their_difference_back_into_range() -> None:
    z, indptr = np.array([1e308, -1e308]), np.array([0, 2])
    expected = scipy.special.softmax([1.0, -1.0])
    for temperature in (1e308, [1e308]):
        np.testing.assert_allclose(softmax.softmax(z, indptr, temperature), expected)
        np.testing.assert_allclose(np.exp(softmax.log_softmax(z, indptr, temperature)), expected)
        p, abstention = softmax.softmax_one(z, indptr, temperature)
        np.testing.assert_allclose([*p, *abstention], scipy.special.softmax([1.0, -1.0, 0.0]))
        soft = losses.temperature_loss(z, indptr, [0.5, 0.5], temperature)
        assert soft.by_log_temperature == pytest.approx([-np.tanh(1)])
    assert losses.fenchel_young(z, indptr, [0], 1.5)[0].tolist() == [0.0]  # and nothing warns


def test_shapes_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="legal_mask: expected bool"):
        dense.masked_softmax(np.zeros((2, 2)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="logits: expected floats"):
        softmax.gather_legal(np.zeros((2, 2), dtype=int), [0], [0, 1, 1])
    with pytest.raises(ValueError, match=r"slots: must be in 0\.\.1, got 2\.\.2"):
        softmax.gather_legal(np.zeros((1, 2)), [2], [0, 1])
    with pytest.raises(ValueError, match="indptr: 1 rows, but logits have 2"):
        softmax.gather_legal(np.zeros((2, 2)), [0], [0, 1])


@given(batches(st.floats(-1e6, 1e6)))
def test_logsumexp_is_scipys(batch: Batch) -> None:
    logits, mask = batch
    slots, indptr = softmax.ragged_of_mask(mask)
    values, indptr = softmax.gather_legal(logits, slots, indptr)
    for row, total in enumerate(softmax.logsumexp(values, indptr)):
        own = logits[row][mask[row]]
        expected = scipy.special.logsumexp(own) if own.size else -np.inf
        np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-12)
