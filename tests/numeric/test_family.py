"""What a user would lose: softmax and its kin, each with the properties that define it, dense and ragged alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from movemask.errors import InvalidLogits
from movemask.numeric import dense, entmax, losses, masking, softmax
from tests.numeric.batches import Ragged, ragged, wide

Array = NDArray[Any]

RAGGED: dict[str, Callable[..., Array]] = {
    "softmax": softmax.softmax,
    "softmax_one": lambda *a, **k: softmax.softmax_one(*a, **k)[0],
    "sparsemax": entmax.sparsemax,
    "entmax15": entmax.entmax15,
    "entmax(1.3)": lambda z, i, *a, **k: entmax.entmax(z, i, 1.3, *a, **k),
}
DENSE: dict[str, Callable[..., Array]] = {
    "softmax": dense.masked_softmax,
    "softmax_one": lambda *a, **k: dense.masked_softmax_one(*a, **k)[0],
    "sparsemax": dense.masked_sparsemax,
    "entmax15": dense.masked_entmax15,
    "entmax(1.3)": lambda z, m, *a, **k: dense.masked_entmax(z, m, 1.3, *a, **k),
}
SUM_TO_ONE = sorted(set(RAGGED) - {"softmax_one"})


@pytest.mark.parametrize("which", SUM_TO_ONE)
@given(batch=ragged(-1e300, 1e300))
def test_rows_sum_to_one_and_are_not_negative_whatever_the_logits(which: str, batch: Ragged) -> None:
    p = RAGGED[which](batch.values, batch.indptr)
    assert (p >= 0).all()
    for own in batch.split(p):
        assert not len(own) or abs(own.sum() - 1) < 1e-12


@pytest.mark.parametrize("which", sorted(RAGGED))
@given(batch=ragged(longest=6), seed=st.integers(0, 99), poison=st.sampled_from([np.nan, np.inf, -np.inf, 1e300]))
def test_dense_is_ragged_bit_for_bit_and_illegal_logits_cannot_touch_it(
    which: str, batch: Ragged, seed: int, poison: float
) -> None:
    rng = np.random.default_rng(seed)
    mask = np.zeros((len(batch.rows), 9), dtype=bool)
    logits = np.full(mask.shape, poison)
    for row, own in enumerate(batch.rows):
        slots = np.sort(rng.choice(9, len(own), replace=False))
        mask[row, slots] = True
        logits[row, slots] = own
    p = DENSE[which](logits, mask)
    assert p[mask].tobytes() == RAGGED[which](batch.values, batch.indptr).tobytes()
    assert not p[~mask].any()
    assert DENSE[which](np.where(mask, logits, 0.0), mask).tobytes() == p.tobytes()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@given(batch=ragged(-60_000, 60_000), temperature=st.sampled_from([0.7, 1.0, 30.0]))
def test_the_input_s_dtype_comes_back_on_request_and_is_the_exact_result_rounded(
    dtype: type[np.floating], batch: Ragged, temperature: float
) -> None:
    """What a network in half precision would lose: float16 in, more precision inside, float16 out."""
    rows = [row.astype(dtype) for row in batch.rows]
    z = np.concatenate([*rows, np.empty(0, dtype)])
    mask = np.arange(12) < np.array([len(row) for row in rows])[:, None]
    logits = np.full(mask.shape, np.nan, dtype)
    logits[mask] = z
    for of_rows, of_mask, peer, elsewhere in (
        (softmax.softmax, dense.masked_softmax, scipy.special.softmax, 0.0),
        (softmax.log_softmax, dense.masked_log_softmax, scipy.special.log_softmax, -np.inf),
    ):
        found = of_rows(z, batch.indptr, temperature, keep_dtype=True)
        exact = [peer(row.astype(np.longdouble) / temperature) for row in rows if len(row)]
        with np.errstate(over="ignore"):  # a logarithm below -65504 is -inf in float16
            expected = np.concatenate([*exact, np.empty(0)]).astype(dtype)
            rounded = of_rows(z.astype(np.float64), batch.indptr, temperature).astype(dtype)
        assert found.dtype == dtype
        close = max(2 * float(np.finfo(dtype).eps), 1e-9)
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=close, atol=1e-7)
        np.testing.assert_array_equal(found, rounded)
        masked = of_mask(logits, mask, temperature, keep_dtype=True)
        assert masked.dtype == dtype
        np.testing.assert_array_equal(masked[mask], found)
        assert (masked[~mask] == elsewhere).all()


def test_half_precision_alone_would_lose_what_it_keeps() -> None:
    z = np.full(4096, 5.0, dtype=np.float16)
    with np.errstate(over="ignore"):
        assert np.exp(z).sum() == np.inf  # past 65504
    np.testing.assert_array_equal(softmax.softmax(z, [0, 4096], keep_dtype=True), np.full(4096, 2.0**-12, np.float16))


@pytest.mark.parametrize("which", sorted(RAGGED))
@given(batch=ragged(empty=False), temperature=st.floats(0.1, 10))
def test_temperature_divides_the_logits(which: str, batch: Ragged, temperature: float) -> None:
    p = RAGGED[which](batch.values, batch.indptr, temperature)
    np.testing.assert_allclose(p, RAGGED[which](batch.values / temperature, batch.indptr), rtol=1e-9, atol=1e-12)
    each = np.full(len(batch.rows), temperature)
    np.testing.assert_allclose(RAGGED[which](batch.values, batch.indptr, each), p, rtol=1e-15)


@pytest.mark.parametrize("which", sorted(RAGGED))
@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf, np.array([1.0, -1.0, 1.0, 1.0]), np.ones(3)])
def test_temperatures_that_cannot_be_are_refused_by_name(which: str, temperature: Any) -> None:
    batch = wide()
    with pytest.raises(ValueError, match="temperature: "):
        RAGGED[which](batch.values, batch.indptr, temperature)


@pytest.mark.parametrize("which", sorted(RAGGED))
@pytest.mark.parametrize(
    ("logits", "indptr", "words"),
    [
        (np.zeros((2, 2)), [0, 2], "legal_logits: expected floats"),
        (np.zeros(2, dtype=int), [0, 2], "legal_logits: expected floats"),
        (np.zeros(2), [0, 3], "indptr: must rise from 0"),
        (np.zeros(2), [0, 2, 1, 2], "indptr: must rise"),
        (np.array([0.0, 1.0, np.nan, 2.0]), [0, 2, 4], "legal_logits: row 1 holds nan"),
        (np.array([0.0, 1.0, np.inf, 2.0]), [0, 2, 4], "legal_logits: row 1 holds inf"),
    ],
)
def test_shapes_that_do_not_fit_and_logits_that_are_no_numbers_are_refused_by_name(
    which: str, logits: Array, indptr: list[int], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        RAGGED[which](logits, indptr)
    with pytest.raises(ValueError, match=r"legal_mask: shape \(2, 2\), but logits have \(2, 3\)"):
        DENSE[which](np.zeros((2, 3)), np.ones((2, 2), dtype=bool))


@given(batch=ragged(-700, 700))
def test_softmax_its_logarithm_and_logsumexp_are_scipys(batch: Ragged) -> None:
    for name in ("softmax", "log_softmax"):
        expected = [getattr(scipy.special, name)(row) if len(row) else row for row in batch.rows]
        found = getattr(softmax, name)(batch.values, batch.indptr)
        np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-12, atol=1e-12 * (name == "log_softmax"))
    totals = [scipy.special.logsumexp(row) if len(row) else -np.inf for row in batch.rows]
    np.testing.assert_allclose(softmax.logsumexp(batch.values, batch.indptr), totals, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_legal_logit_that_is_no_number_is_refused_by_slot(bad: float) -> None:
    logits: Array = np.zeros((2, 4))
    logits[1, 2] = bad
    with pytest.raises(InvalidLogits, match=r"row 1, slot 2: the logit of a legal move is (nan|inf)"):
        dense.masked_softmax(logits, np.ones((2, 4), dtype=bool))


def test_a_row_of_minus_infinity_alone_is_refused_but_one_move_of_it_is_not() -> None:
    for which in SUM_TO_ONE:
        with pytest.raises(ValueError, match="legal_logits: row 0 holds -inf alone"):
            RAGGED[which](np.array([-np.inf, -np.inf]), np.array([0, 2]))
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


class TestSoftmaxOne:
    """A softmax with one more logit that is always 0."""

    @given(batch=ragged(-1e300, 1e300))
    def test_it_is_softmax_with_a_zero_beside(self, batch: Ragged) -> None:
        p, abstention = softmax.softmax_one(batch.values, batch.indptr)
        beside = Ragged(tuple(np.append(row, 0.0) for row in batch.rows))
        for own, left, other in zip(
            batch.split(p), abstention, beside.split(softmax.softmax(beside.values, beside.indptr)), strict=True
        ):
            np.testing.assert_allclose([*own, left], other, rtol=1e-12, atol=1e-300)
            assert abs(own.sum() + left - 1) < 1e-12


class TestEntmax:
    """Sparse distributions, each found in two ways."""

    @given(batch=ragged(-4, 4))
    def test_exact_thresholds_meet_the_bisection(self, batch: Ragged) -> None:
        for alpha, exact in ((2.0, entmax.sparsemax), (1.5, entmax.entmax15), (1.0, softmax.softmax)):
            np.testing.assert_allclose(
                exact(batch.values, batch.indptr), entmax.entmax(batch.values, batch.indptr, alpha), atol=1e-12
            )

    @given(batch=ragged(-3, 3, empty=False), alpha=st.sampled_from([1.3, 1.5, 2.0]))
    def test_each_satisfies_its_equation(self, batch: Ragged, alpha: float) -> None:
        """p = max(0, (alpha - 1) z - threshold) ** (1 / (alpha - 1)), with one threshold for a row."""
        kernels = {1.3: RAGGED["entmax(1.3)"], 1.5: entmax.entmax15, 2.0: entmax.sparsemax}
        p = kernels[alpha](batch.values, batch.indptr)
        for own, z in zip(batch.split(p), batch.rows, strict=True):
            support = own > 0
            thresholds = (alpha - 1) * z[support] - own[support] ** (alpha - 1)
            np.testing.assert_allclose(thresholds, thresholds[0], atol=1e-9)
            assert ((alpha - 1) * z[~support] <= thresholds[0] + 1e-9).all()

    def test_one_alpha_for_each_row(self) -> None:
        z, indptr = np.array([1.0, 0.5, 1.0, 0.5, 1.0, 0.5]), np.array([0, 2, 4, 6])
        p = entmax.entmax(z, indptr, [1.0, 1.5, 2.0])
        np.testing.assert_allclose(p[:2], softmax.softmax(z[:2], [0, 2]))
        np.testing.assert_allclose(p[2:4], entmax.entmax15(z[:2], [0, 2]), atol=1e-14)
        np.testing.assert_allclose(p[4:], entmax.sparsemax(z[:2], [0, 2]), atol=1e-14)

    @pytest.mark.parametrize("alpha", [0.5, np.nan, np.inf, [1.5, 1.5]])
    def test_an_alpha_that_cannot_be_is_refused_by_name(self, alpha: Any) -> None:
        with pytest.raises(ValueError, match="alpha: "):
            entmax.entmax(np.zeros(2), [0, 2], alpha)


class TestMasking:
    """Three ways to the same, and where two of them fail."""

    @given(batch=ragged(-300, 300), seed=st.integers(0, 99))
    def test_they_agree_where_nothing_underflows(self, batch: Ragged, seed: int) -> None:
        legal = np.random.default_rng(seed).random(len(batch.values)) < 0.6
        kept = Ragged(tuple(row[own] for row, own in zip(batch.rows, batch.split(legal), strict=True)))
        expected = np.zeros(len(batch.values))
        expected[legal] = softmax.softmax(kept.values, kept.indptr)
        ways = (
            masking.ragged_log_mask_softmax(batch.values, batch.indptr, legal),
            masking.ragged_softmax_then_mask(batch.values, batch.indptr, legal),
        )
        np.testing.assert_allclose(ways[0], expected, rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose(ways[1], expected, rtol=1e-6, atol=1e-250)

    def test_where_each_fails_and_gather_does_not(self) -> None:
        mask = np.array([[True, True, False]])
        underflowing = np.array([[0.0, 1.0, 800.0]])
        assert np.isnan(masking.softmax_then_mask(underflowing, mask)).any()
        poisoned = np.array([[0.0, 1.0, np.inf]])
        assert np.isnan(masking.log_mask_softmax(poisoned, mask)).any()
        expected = scipy.special.softmax([0.0, 1.0])
        for z in (underflowing, poisoned):
            np.testing.assert_allclose(dense.masked_softmax(z, mask)[0, :2], expected)

    def test_what_cannot_be_is_refused_by_name(self) -> None:
        with pytest.raises(ValueError, match="weights: must be at least 0, got -1"):
            masking.log_mask_softmax(np.zeros((1, 2)), np.array([[1.0, -1.0]]))
        with pytest.raises(ValueError, match="weights: expected bool or floats of shape"):
            masking.log_mask_softmax(np.zeros((1, 2)), np.ones((1, 3)))
        with pytest.raises(ValueError, match="legal: expected bool of shape"):
            masking.ragged_softmax_then_mask(np.zeros(2), [0, 2], np.ones(2))
