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
from movemask.numeric import softmax as kernels

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


def test_the_known_example() -> None:
    logits = np.array([[1.2355, -0.1710, -0.6606, -0.2050, -1.4690]])
    mask = np.array([[True, False, True, True, False]])
    assert dense.masked_softmax(logits, mask)[0] == pytest.approx([0.7210, 0, 0.1083, 0.1707, 0], abs=5e-5)


@given(batches(st.floats(-700, 700)))
def test_dense_is_softmax_of_logits_plus_log_mask(batch: Batch) -> None:
    np.testing.assert_allclose(dense.masked_softmax(*batch), by_definition(*batch), rtol=1e-12, atol=1e-300)


@given(batches())
def test_every_row_with_a_legal_slot_sums_to_one_and_an_empty_row_to_nothing(batch: Batch) -> None:
    sums = dense.masked_softmax(*batch).sum(axis=1)
    np.testing.assert_allclose(sums, batch[1].any(axis=1).astype(float), atol=1e-12, rtol=0)


@given(batches())
def test_ragged_and_dense_agree_bit_for_bit(batch: Batch) -> None:
    logits, mask = batch
    slots, indptr = softmax.ragged_of_mask(mask)
    values, indptr = softmax.gather_legal(logits, slots, indptr)
    assert np.array_equal(kernels.softmax(values, indptr), dense.masked_softmax(logits, mask)[mask])
    assert np.array_equal(kernels.log_softmax(values, indptr), dense.masked_log_softmax(logits, mask)[mask])


@given(batches(), st.sampled_from([np.nan, np.inf, -np.inf, 1e30, -1e30]))
def test_illegal_logits_cannot_touch_the_policy(batch: Batch, poison: float) -> None:
    logits, mask = batch
    poisoned = np.where(mask, logits, poison)
    assert dense.masked_softmax(poisoned, mask).tobytes() == dense.masked_softmax(logits, mask).tobytes()


@given(batches(st.floats(-300, 300)), st.floats(-1000, 1000))
def test_a_constant_added_to_all_logits_changes_nothing(batch: Batch, constant: float) -> None:
    logits, mask = batch
    np.testing.assert_allclose(
        dense.masked_softmax(logits + constant, mask), dense.masked_softmax(logits, mask), rtol=1e-9, atol=1e-15
    )


@given(batches(st.floats(-300, 300)), st.floats(0.05, 20))
def test_log_softmax_is_the_logarithm_and_temperature_divides_the_logits(batch: Batch, temperature: float) -> None:
    logits, mask = batch
    log_policy = dense.masked_log_softmax(logits, mask, temperature)
    np.testing.assert_allclose(np.exp(log_policy), dense.masked_softmax(logits, mask, temperature), rtol=1e-9)
    np.testing.assert_allclose(
        dense.masked_softmax(logits, mask, temperature),
        by_definition(logits / temperature, mask),
        rtol=1e-9,
        atol=1e-300,
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_any_float_goes_in_and_float64_is_inside(dtype: type[np.floating]) -> None:
    logits: NDArray[np.floating] = np.array([[10.0, 11.0, -3.0, 0.5]], dtype=dtype)
    mask = np.array([[True, True, False, True]])
    policy = dense.masked_softmax(logits, mask)
    assert policy.dtype == np.float64
    assert abs(policy.sum() - 1) < 1e-15
    np.testing.assert_allclose(policy, by_definition(logits.astype(np.float64), mask), rtol=1e-14)


def test_218_moves_one_move_and_none_in_one_batch() -> None:
    rng = np.random.default_rng(0)
    mask = np.zeros((3, 1858), dtype=bool)
    mask[0, rng.choice(1858, 218, replace=False)] = True
    mask[1, 77] = True
    policy = dense.masked_softmax(rng.normal(size=(3, 1858)).astype(np.float32), mask)
    assert abs(policy[0].sum() - 1) < 1e-12
    assert policy[1, 77] == 1.0
    assert not policy[2].any()


def test_one_temperature_for_each_row() -> None:
    logits = np.array([[0.0, 2.0], [0.0, 2.0]])
    mask = np.ones((2, 2), dtype=bool)
    policy = dense.masked_softmax(logits, mask, [1.0, 2.0])
    assert policy[0, 1] == pytest.approx(1 / (1 + np.exp(-2)))
    assert policy[1, 1] == pytest.approx(1 / (1 + np.exp(-1)))


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


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf, [1.0, 2.0, 3.0]])
def test_a_temperature_that_cannot_be_is_refused_by_name(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature: "):
        dense.masked_softmax(np.zeros((2, 2)), np.ones((2, 2), dtype=bool), temperature)


def test_a_temperature_as_large_as_the_logits_brings_their_difference_back_into_range() -> None:
    z, indptr = np.array([1e308, -1e308]), np.array([0, 2])
    expected = scipy.special.softmax([1.0, -1.0])
    for temperature in (1e308, [1e308]):
        np.testing.assert_allclose(kernels.softmax(z, indptr, temperature), expected)
        np.testing.assert_allclose(np.exp(kernels.log_softmax(z, indptr, temperature)), expected)
        p, abstention = kernels.softmax_one(z, indptr, temperature)
        np.testing.assert_allclose([*p, *abstention], scipy.special.softmax([1.0, -1.0, 0.0]))
        soft = losses.temperature_loss(z, indptr, [0.5, 0.5], temperature)
        assert soft.by_log_temperature == pytest.approx([-np.tanh(1)])
    assert losses.fenchel_young(z, indptr, [0], 1.5)[0].tolist() == [0.0]  # and nothing warns


def test_shapes_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"legal_mask: shape \(2, 3\), but logits have \(2, 2\)"):
        dense.masked_softmax(np.zeros((2, 2)), np.ones((2, 3), dtype=bool))
    with pytest.raises(ValueError, match="legal_mask: expected bool"):
        dense.masked_softmax(np.zeros((2, 2)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="logits: expected floats"):
        softmax.gather_legal(np.zeros((2, 2), dtype=int), [0], [0, 1, 1])
    with pytest.raises(ValueError, match=r"slots: must be in 0\.\.1, got 2\.\.2"):
        softmax.gather_legal(np.zeros((1, 2)), [2], [0, 1])
    with pytest.raises(ValueError, match="indptr: 1 rows, but logits have 2"):
        softmax.gather_legal(np.zeros((2, 2)), [0], [0, 1])
    with pytest.raises(ValueError, match="indptr: must rise from 0"):
        kernels.softmax(np.zeros(3), [0, 2])


@given(batches(st.floats(-1e6, 1e6)))
def test_logsumexp_is_scipys(batch: Batch) -> None:
    logits, mask = batch
    slots, indptr = softmax.ragged_of_mask(mask)
    values, indptr = softmax.gather_legal(logits, slots, indptr)
    for row, total in enumerate(kernels.logsumexp(values, indptr)):
        own = logits[row][mask[row]]
        expected = scipy.special.logsumexp(own) if own.size else -np.inf
        np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-12)
