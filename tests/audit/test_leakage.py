"""What a user would lose: leakage that is exact, from 1e-300 to 1, and never a number where there is none."""

from __future__ import annotations

from decimal import Decimal, localcontext

import chess
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.audit import leakage
from service.audit.counterfactual import multiplied_softmax
from service.encoding.position import Position
from service.encoding.vocabularies import vocabulary
from service.errors import ServedLeakage
from service.numeric.dense import masked_softmax
from service.numeric.gather import ragged_of_mask

Batch = tuple[NDArray[np.float64], NDArray[np.bool_]]


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Logits [B, A] with at least one legal slot in each row."""
    rows, slots = draw(st.integers(1, 4)), draw(st.integers(2, 20))
    logits = [draw(st.lists(st.floats(-300, 300), min_size=slots, max_size=slots)) for _ in range(rows)]
    mask = [draw(st.lists(st.booleans(), min_size=slots, max_size=slots)) for _ in range(rows)]
    for row in mask:
        row[draw(st.integers(0, slots - 1))] = True
    return np.array(logits), np.array(mask)


def exactly(logits: NDArray[np.float64], mask: NDArray[np.bool_], *, multiplied: bool) -> list[float]:
    """The definition of softmax's illegal share, word for word, with sixty digits."""
    shares = []
    with localcontext() as context:
        context.prec = 60
        for row, legal in zip(logits.tolist(), mask.tolist(), strict=True):
            z = [value * is_legal if multiplied else value for value, is_legal in zip(row, legal, strict=True)]
            weights = [Decimal(value).exp() for value in z]
            illegal = sum((w for w, is_legal in zip(weights, legal, strict=True) if not is_legal), Decimal(0))
            shares.append(float(illegal / sum(weights)))
    return shares


@given(batches())
def test_raw_and_multiplied_by_their_definitions(batch: Batch) -> None:
    logits, mask = batch
    slots, indptr = ragged_of_mask(mask)
    np.testing.assert_allclose(leakage.raw(logits, slots, indptr), exactly(*batch, multiplied=False), rtol=1e-11)
    np.testing.assert_allclose(leakage.multiplied(logits, slots, indptr), exactly(*batch, multiplied=True), rtol=1e-11)


@given(batches(), st.floats(-100, 100))
def test_a_constant_changes_multiplied_but_not_raw(batch: Batch, constant: float) -> None:
    logits, mask = batch
    slots, indptr = ragged_of_mask(mask)
    np.testing.assert_allclose(
        leakage.raw(logits + constant, slots, indptr), leakage.raw(logits, slots, indptr), rtol=1e-9
    )
    if (~mask).any() and constant >= 1:
        assert (leakage.multiplied(logits + constant, slots, indptr) <= leakage.multiplied(logits, slots, indptr)).all()


def test_the_known_mistake() -> None:
    logits = np.array([[1.2355, -0.1710, -0.6606, -0.2050, -1.4690]])
    mask = np.array([[True, False, True, True, False]])
    slots, indptr = ragged_of_mask(mask)
    assert leakage.multiplied(logits, slots, indptr)[0] == pytest.approx(2 * 0.1477, abs=1e-4)
    mistaken = multiplied_softmax(logits, mask)
    np.testing.assert_allclose(mistaken, [[0.5080, 0.1477, 0.0763, 0.1203, 0.1477]], atol=5e-5)


@given(batches())
def test_multiplied_is_what_the_mistaken_policy_puts_on_illegal_slots(batch: Batch) -> None:
    logits, mask = batch
    slots, indptr = ragged_of_mask(mask)
    on_illegal = np.where(mask, 0.0, multiplied_softmax(logits, mask)).sum(axis=1)
    np.testing.assert_allclose(leakage.multiplied(logits, slots, indptr), on_illegal, rtol=1e-10)


def test_no_illegal_slot_leaks_nothing_and_minus_infinity_neither() -> None:
    mask = np.array([[True, True]])
    slots, indptr = ragged_of_mask(mask)
    assert leakage.raw(np.zeros((1, 2)), slots, indptr).tolist() == [0.0]
    assert leakage.multiplied(np.zeros((1, 2)), slots, indptr).tolist() == [0.0]
    half = np.array([[0.0, -np.inf]])
    slots, indptr = ragged_of_mask(np.array([[True, False]]))
    assert leakage.raw(half, slots, indptr).tolist() == [0.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_illegal_logit_that_is_no_number_makes_raw_unmeasured_not_wrong(bad: float) -> None:
    position = Position.read()
    words = vocabulary("movemask-1880")
    _, slots = words.legal_slots(position)
    logits = np.zeros((1, 1880), dtype=np.float32)
    logits[0, [i for i in range(1880) if i not in set(slots.tolist())][5]] = bad
    found = leakage.leakages(
        [position], words, logits, slots, np.array([0, 20], dtype=np.intp), [0.0], illegal_moves=5
    )[0]
    assert found.raw is None
    assert found.illegal == ()
    assert found.multiplied == pytest.approx(1860 / 1880)


def test_float16_logits_are_summed_in_float64() -> None:
    logits = np.full((1, 1880), 11.0, dtype=np.float16)  # exp(11) * 1880 is beyond float16
    slots, indptr = np.arange(20), np.array([0, 20])
    assert leakage.raw(logits, slots, indptr)[0] == pytest.approx(1860 / 1880, rel=1e-12)


def test_the_heaviest_illegal_moves_are_named_as_the_board_has_them() -> None:
    words = vocabulary("movemask-1880")
    position = Position.read(moves=["e2e4"])
    moves, slots = words.legal_slots(position)
    logits = np.full((1, 1880), -50.0)
    logits[0, slots] = 0.0
    names = words.names()
    logits[0, names.index("e4e5")] = 3.0  # seen from Black: e5e4
    logits[0, names.index("a7a8q")] = 2.0
    found = leakage.leakages([position], words, logits, slots, np.array([0, len(moves)]), [0.0], illegal_moves=2)[0]
    weights = np.exp(logits[0])
    assert [(move.uci, pytest.approx(move.probability)) for move in found.illegal] == [
        ("e5e4", weights[names.index("e4e5")] / weights.sum()),
        ("a2a1q", weights[names.index("a7a8q")] / weights.sum()),
    ]


class TestServed:
    """A planted mistake must trip: this is the promise of every answer."""

    board = chess.Board()
    moves = tuple(board.legal_moves)

    def test_a_right_answer_is_exactly_zero(self) -> None:
        assert leakage.served(self.board, self.moves, np.full(20, 0.05)) == 0.0

    def test_an_illegal_move_trips_however_small(self) -> None:
        moves = (*self.moves[:-1], chess.Move.from_uci("e2e5"))
        probabilities = np.full(20, 1 / 19)
        probabilities[-1] = 5e-324
        with pytest.raises(ServedLeakage, match="holds 5e-324 on illegal moves"):
            leakage.served(self.board, moves, probabilities)

    def test_a_sum_off_by_1e_11_or_nan_trips(self) -> None:
        for off in (1e-11, -1e-11, np.nan):
            probabilities = np.full(20, 0.05)
            probabilities[0] += off
            with pytest.raises(ServedLeakage, match="sums to"):
                leakage.served(self.board, self.moves, probabilities)

    def test_a_move_told_twice_trips(self) -> None:
        with pytest.raises(ServedLeakage, match="a move twice"):
            leakage.served(self.board, (self.moves[0], self.moves[0]), np.array([0.5, 0.5]))

    def test_the_multiply_mistake_cannot_pass(self) -> None:
        mask = np.zeros((1, 1880), dtype=bool)
        words = vocabulary("movemask-1880")
        mask[0, words.legal_slots(Position(self.board))[1]] = True
        logits = np.random.default_rng(0).normal(size=(1, 1880))
        mistaken = multiplied_softmax(logits, mask)
        moves = tuple(words.move(slot, self.board) for slot in range(1880))
        with pytest.raises(ServedLeakage, match="on illegal moves"):
            leakage.served(self.board, moves, mistaken[0])
        right = masked_softmax(logits, mask)[0]
        legal = [slot for slot in range(1880) if mask[0, slot]]
        assert leakage.served(self.board, [moves[slot] for slot in legal], right[legal]) == 0.0
