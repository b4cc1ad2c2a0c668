"""Dense functions of `[B, A]` with a mask, against their ragged forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from movemask.errors import InvalidLogits
from movemask.policy import distributions, softmax
from movemask.policy.temperature import cross_entropy
from study import dense, distances, gradients, losses
from tests.policy.batches import KERNELS, Ragged, ragged

Array = NDArray[Any]

DENSE: dict[str, Callable[..., Array]] = {
    "softmax": dense.masked_softmax,
    "softmax_one": lambda *a, **k: dense.masked_softmax_one(*a, **k)[0],
    "sparsemax": dense.masked_sparsemax,
    "entmax15": dense.masked_entmax15,
    "entmax": lambda z, m, *a, **k: dense.masked_entmax(z, m, 1.3, *a, **k),
}

RNG = np.random.default_rng(8)
MASK = np.array([[True, True, False, True, False, True], [False] * 3 + [True] * 3, [True] * 6])
LOGITS = np.where(MASK, RNG.normal(size=MASK.shape), np.nan)
POLICY, OTHER = dense.masked_softmax(LOGITS, MASK), dense.masked_softmax(-LOGITS, MASK)
VECTORS = RNG.normal(size=MASK.shape)
SLOTS, PLACES = np.array([3, 5, 0]), np.array([2, 2, 0])
Z, P, Q, V, INDPTR = LOGITS[MASK], POLICY[MASK], OTHER[MASK], VECTORS[MASK], np.array([0, 4, 7, 13])


def both(loss: Callable[..., Any], gradient: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
    return loss(*arguments), gradient(*arguments)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (dense.masked_softmax_one(LOGITS, MASK, 2.0), softmax.softmax_one(Z, INDPTR, 2.0)),
        (dense.masked_logsumexp(LOGITS, MASK), softmax.logsumexp(Z, INDPTR)),
        (dense.masked_absolute(LOGITS, MASK), gradients.absolute(Z, INDPTR)),
        (dense.masked_absolute_jvp(LOGITS, MASK, VECTORS), gradients.absolute_jvp(Z, INDPTR, V)),
        (dense.masked_absolute_vjp(LOGITS, MASK, VECTORS), gradients.absolute_vjp(Z, INDPTR, V)),
        (dense.masked_top_k(POLICY, MASK, 2), distributions.top_k(P, INDPTR, 2)),
        (dense.masked_top_p(POLICY, MASK, 0.7), distributions.top_p(P, INDPTR, 0.7)),
        (dense.masked_min_p(POLICY, MASK, 0.5), distributions.min_p(P, INDPTR, 0.5)),
        *(
            (dense.masked_statistic(statistic, POLICY, MASK), statistic(P, INDPTR))
            for statistic in (
                distributions.entropy,
                distributions.gini,
                distributions.inverse_simpson,
                distributions.maximum,
            )
        ),
        *(
            (dense.masked_distance(distance, POLICY, OTHER, MASK), distance(P, Q, INDPTR))
            for distance in (distances.total_variation, distributions.kl_divergence, distances.jensen_shannon)
        ),
        (
            dense.masked_cross_entropy(LOGITS, MASK, SLOTS, 2.0),
            both(cross_entropy, losses.cross_entropy_gradient, Z, INDPTR, PLACES, 2.0),
        ),
        (dense.masked_mean_cross_entropy(LOGITS, MASK, SLOTS), losses.mean_cross_entropy(Z, INDPTR, PLACES)),
        (dense.masked_fenchel_young(LOGITS, MASK, SLOTS, 1.5), losses.fenchel_young(Z, INDPTR, PLACES, 1.5)),
        (
            dense.masked_soft_cross_entropy(LOGITS, MASK, OTHER, 1.5),
            both(losses.soft_cross_entropy, losses.soft_cross_entropy_gradient, Z, INDPTR, Q, 1.5),
        ),
        (dense.masked_mean_soft_cross_entropy(LOGITS, MASK, OTHER), losses.mean_soft_cross_entropy(Z, INDPTR, Q)),
        (dense.masked_probability_gradient(POLICY, MASK, OTHER), losses.probability_gradient(P, INDPTR, Q)),
        (dense.masked_mean_probability_gradient(POLICY, MASK, OTHER), losses.mean_probability_gradient(P, INDPTR, Q)),
        (
            dense.masked_temperature_loss(LOGITS, MASK, OTHER, 1.5).by_log_temperature,
            losses.temperature_loss(Z, INDPTR, Q, 1.5).by_log_temperature,
        ),
    ],
)
def test_dense_is_scattered_ragged(result: Any, expected: Any) -> None:
    pairs = zip(result, expected, strict=True) if isinstance(expected, tuple) else [(result, expected)]
    for one, other in pairs:
        if np.shape(other) == Z.shape:
            assert not one[~MASK].any()
            np.testing.assert_array_equal(one[MASK], other)
        else:
            np.testing.assert_array_equal(one, other)


def test_illegal_log_probability_and_row_without_moves() -> None:
    result = dense.masked_log_softmax(LOGITS, MASK)
    np.testing.assert_array_equal(result[MASK], softmax.log_softmax(Z, INDPTR))
    assert (result[~MASK] == -np.inf).all()
    none = np.zeros(MASK.shape, dtype=bool)
    assert not dense.masked_softmax(LOGITS, none).any()
    assert not dense.masked_top_k(POLICY, none, 1).any()


@pytest.mark.parametrize("bad", [[2, 5, 0], [3, 5, 6], [-1, 5, 0], [3, 5]])
def test_illegal_targets_raise(bad: Any) -> None:
    with pytest.raises(ValueError, match="targets: "):
        dense.masked_cross_entropy(LOGITS, MASK, np.array(bad))
    with pytest.raises(ValueError, match="targets: slot 0 in row 0 is not legal"):
        dense.masked_cross_entropy(LOGITS[:1], np.zeros((1, 6), dtype=bool), [0])


def test_target_mass_on_illegal_slot_raises() -> None:
    targets = OTHER.copy()
    targets[0, 2] = 0.1
    with pytest.raises(ValueError, match=r"targets: slot 2 in row 0 is not legal, but has 0\.1"):
        dense.masked_soft_cross_entropy(LOGITS, MASK, targets)
    with pytest.raises(ValueError, match="targets: expected shape"):
        dense.masked_temperature_loss(LOGITS, MASK, targets[:2])


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_jacobians(alpha: float) -> None:
    policy = dense.masked_entmax(LOGITS, MASK, alpha)
    jacobian, by_product = dense.entmax_jacobian(policy, alpha), dense.entmax_jvp(policy, VECTORS, alpha)
    np.testing.assert_allclose(np.einsum("bij,bj->bi", jacobian, VECTORS), by_product, atol=1e-14)
    np.testing.assert_allclose(by_product[MASK], gradients.entmax_jvp(policy[MASK], INDPTR, V, alpha), atol=1e-14)
    assert not jacobian[~MASK].any()  # no slope of an illegal slot, and none by its logit
    assert not jacobian.transpose(0, 2, 1)[~MASK].any()
    if alpha == 1.0:
        np.testing.assert_allclose(dense.softmax_jacobian(policy), jacobian, atol=1e-14)
        np.testing.assert_allclose(dense.softmax_jvp(policy, VECTORS), by_product, atol=1e-14)


@pytest.mark.parametrize("which", sorted(DENSE))
@given(batch=ragged(longest=6), seed=st.integers(0, 99), poison=st.sampled_from([np.nan, np.inf, -np.inf, 1e300]))
def test_dense_equals_ragged_whatever_illegal_logits(which: str, batch: Ragged, seed: int, poison: float) -> None:
    rng = np.random.default_rng(seed)
    mask = np.zeros((len(batch.rows), 9), dtype=bool)
    logits = np.full(mask.shape, poison)
    for row, own in enumerate(batch.rows):
        slots = np.sort(rng.choice(9, len(own), replace=False))
        mask[row, slots] = True
        logits[row, slots] = own
    p = DENSE[which](logits, mask)
    assert p[mask].tobytes() == KERNELS[which](batch.values, batch.indptr).tobytes()
    assert not p[~mask].any()
    assert DENSE[which](np.where(mask, logits, 0.0), mask).tobytes() == p.tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_legal_nan_raises(bad: float) -> None:
    logits: Array = np.zeros((2, 4))
    logits[1, 2] = bad
    with pytest.raises(InvalidLogits, match=r"row 1, slot 2: the logit of a legal move is (nan|inf)"):
        dense.masked_softmax(logits, np.ones((2, 4), dtype=bool))


def test_row_of_minus_infinity_raises() -> None:
    mask = np.ones((1, 2), dtype=bool)
    assert dense.masked_softmax(np.array([[-np.inf, 0.0]]), mask).tolist() == [[0.0, 1.0]]
    with pytest.raises(InvalidLogits, match="row 0: the logit of every legal move is -inf"):
        dense.masked_softmax(np.array([[-np.inf, -np.inf]]), mask)


def test_shapes_that_do_not_fit_raise() -> None:
    with pytest.raises(ValueError, match=r"legal_mask: shape \(2, 2\), but logits have \(2, 3\)"):
        dense.masked_softmax(np.zeros((2, 3)), np.ones((2, 2), dtype=bool))
    with pytest.raises(ValueError, match="legal_mask: expected bool"):
        dense.masked_softmax(np.zeros((2, 2)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="logits: expected floats"):
        dense.gather_legal(np.zeros((2, 2), dtype=int), [0], [0, 1, 1])
    with pytest.raises(ValueError, match=r"slots: must be in 0\.\.1, got 2\.\.2"):
        dense.gather_legal(np.zeros((1, 2)), [2], [0, 1])
    with pytest.raises(ValueError, match="indptr: 1 rows, but logits have 2"):
        dense.gather_legal(np.zeros((2, 2)), [0], [0, 1])
