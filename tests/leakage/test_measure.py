"""Kinds of leakage, as small as 1e-260, against their definitions."""

from __future__ import annotations

from decimal import Decimal, localcontext

import chess
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import softmax

from movemask.board.position import Position
from movemask.encoding.vocabularies import vocabulary
from movemask.leakage.causes import Cause
from movemask.leakage.kinds import ANSWER_KINDS, KINDS, fills
from movemask.leakage.measure import Figure, UnmaskedLogits, measure
from study.dense import ragged_of_mask
from tests.leakage.batches import leakages

Batch = tuple[NDArray[np.float64], NDArray[np.bool_]]


@st.composite
def drawn_batches(draw: st.DrawFn) -> Batch:
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


@given(drawn_batches())
def test_raw_and_multiplied_match_definitions(batch: Batch) -> None:
    logits, mask = batch
    unmasked = UnmaskedLogits(logits, *ragged_of_mask(mask))
    np.testing.assert_allclose(unmasked.raw().leaked, exactly(*batch, multiplied=False), rtol=1e-11)
    np.testing.assert_allclose(unmasked.multiplied().leaked, exactly(*batch, multiplied=True), rtol=1e-11)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_illegal_logit_leaves_raw_unmeasured(bad: float) -> None:
    position = Position.read()
    vocab = vocabulary("movemask-1880")
    _, slots = vocab.legal_slots(position)
    logits = np.zeros((1, 1880), dtype=np.float32)
    logits[0, [i for i in range(1880) if i not in set(slots.tolist())][5]] = bad
    kinds = (*ANSWER_KINDS, "unnormalised", "filled_1e4_float16", "rounded")
    leakage = leakages([position], vocab, logits, kinds=kinds)[0]
    assert leakage.figures["unnormalised"] == Figure(None, False, None)
    assert leakage.figures["rounded"].leaked == 0.0
    assert leakage.figures["filled_1e4_float16"].leaked == 0.0
    assert leakage.figures["raw"].leaked is None
    assert leakage.illegal == ()
    assert leakage.figures["multiplied"].leaked == pytest.approx(1860 / 1880)


def test_float16_logits_sum_in_float64() -> None:
    logits = np.full((1, 1880), 11.0, dtype=np.float16)  # exp(11) * 1880 is beyond float16
    raw = UnmaskedLogits(logits, np.arange(20), np.array([0, 20])).raw()
    assert raw.leaked[0] == pytest.approx(1860 / 1880, rel=1e-12)


def test_heaviest_illegal_moves_use_board_squares() -> None:
    vocab = vocabulary("movemask-1880")
    position = Position.read(moves=["e2e4"])
    _, slots = vocab.legal_slots(position)
    logits = np.full((1, 1880), -50.0)
    logits[0, slots] = 0.0
    names = vocab.names()
    logits[0, names.index("e4e5")] = 3.0  # seen from Black: e5e4
    logits[0, names.index("a7a8q")] = 2.0
    leakage = leakages([position], vocab, logits, kinds=ANSWER_KINDS)[0]
    weights = np.exp(logits[0])
    first, second = (weights[names.index(name)] / weights.sum() for name in ("e4e5", "a7a8q"))
    assert [(move.uci, move.cause) for move in leakage.illegal] == [
        ("e5e4", Cause.EMPTY_SQUARE),
        ("a2a1q", Cause.ENEMY_PIECE),
    ]
    assert [move.probability for move in leakage.illegal] == pytest.approx([first, second])
    assert leakage.causes == {Cause.EMPTY_SQUARE: pytest.approx(first), Cause.ENEMY_PIECE: pytest.approx(second)}


def masked(batch: Batch) -> NDArray[np.float64]:
    """The right policies, dense, by scipy."""
    logits, mask = batch
    return np.asarray(softmax(np.where(mask, logits, -np.inf), axis=1))


def divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(p > 0, p * np.log(p / q), 0.0).sum(axis=1))


def changed(p: NDArray[np.float64], q: NDArray[np.float64]) -> list[bool]:
    """Whether the best of `q` is strictly better than what it gives to the best of `p`."""
    return [bool(row_q.max() > row_q[row_p.argmax()]) for row_p, row_q in zip(p, q, strict=True)]


@given(drawn_batches())
def test_flips_and_divergences_match_definitions(batch: Batch) -> None:
    logits, mask = batch
    logits = np.round(logits / 20, 6)  # no probability underflows, and none is better by less than it can tell
    p = masked((logits, mask))
    unmasked = UnmaskedLogits(logits, *ragged_of_mask(mask))
    plain = np.exp(logits - logits.max(axis=1, keepdims=True))
    for measured, mistaken in (
        (unmasked.raw(), plain / plain.sum(axis=1, keepdims=True)),
        (unmasked.multiplied(), softmax(np.where(mask, logits, 0.0), axis=1)),
    ):
        np.testing.assert_allclose(measured.kl, divergence(p, mistaken), rtol=1e-6, atol=1e-12)
        assert measured.flipped.tolist() == changed(p, mistaken)


@given(drawn_batches(), st.sampled_from(sorted(fills())))
def test_filled_matches_dtype_arithmetic(batch: Batch, name: str) -> None:
    """Word for word, row by row, in the dtype."""
    logits, mask = batch
    fill = fills()[name]
    filled = UnmaskedLogits(logits, *ragged_of_mask(mask)).filled(fill)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        z = np.where(mask, logits, fill.constant).astype(fill.dtype)
        weights = np.exp(z - z.max(axis=1, keepdims=True))
        q = (weights.astype(np.float32) / weights.astype(np.float32).sum(axis=1, keepdims=True)).astype(fill.dtype)
    q64 = q.astype(np.float64)
    eps = float(np.finfo(fill.dtype).eps)
    np.testing.assert_allclose(filled.leaked, np.where(mask, 0.0, q64).sum(axis=1), rtol=2 * eps, atol=0)
    right = divergence(masked(batch), q64)
    assert np.isinf(filled.kl).tolist() == np.isinf(right).tolist()
    finite = np.isfinite(right)
    np.testing.assert_allclose(filled.kl[finite], np.maximum(right[finite], 0), atol=20 * eps)


def test_filled_leaks_when_logits_are_as_low() -> None:
    logits = np.array([[-2e4, -2e4, -3e4, 0.0]])
    mask = np.array([[True, True, False, False]])
    slots, indptr = ragged_of_mask(mask)
    measured = UnmaskedLogits(logits, slots, indptr).filled(fills()["filled_1e4_float16"])
    assert measured.leaked.tolist() == [1.0]
    assert measured.flipped.tolist() == [True]
    assert measured.kl.tolist() == [np.inf]
    assert UnmaskedLogits(logits, slots, indptr).filled(fills()["filled_1e9_float32"]).leaked.tolist() == [0.0]
    beyond = UnmaskedLogits(np.array([[7e4, 1.0, 0.0, 0.0]]), slots, indptr).filled(fills()["filled_1e4_float16"])
    assert np.isnan(beyond.leaked).tolist() == [True]  # the logit itself is infinite in float16: no softmax
    assert np.isnan(beyond.kl).tolist() == [True]


@given(drawn_batches())
def test_rounded_is_distance_of_sum_from_one(batch: Batch) -> None:
    logits, mask = batch
    rounded = UnmaskedLogits(logits, *ragged_of_mask(mask)).rounded()
    for row, p in enumerate(masked(batch)):
        exact = abs(1 - sum((Decimal(str(round(float(x), 4))) for x in p), Decimal(0)))
        assert rounded.leaked[row] == pytest.approx(float(exact), abs=1.1e-4)  # a tie may round the other way
        assert rounded.leaked[row] in {k / 10_000 for k in range(10_000)}
    assert not rounded.flipped.any()


def unmirrored_by_hand(position: Position, logits: NDArray[np.float64], name: str) -> tuple[float, bool]:
    """Black's moves looked up as if they were White's: what the policy over those slots gives to others."""
    vocab = vocabulary(name)
    names, legal = vocab.names(), set(vocab.legal_slots(position)[1].tolist())
    board = position.board
    looked_up = set()
    for move in board.legal_moves:
        target = move.to_square
        if board.is_castling(move):
            target = chess.square(7 if chess.square_file(target) == 6 else 0, chess.square_rank(target))
        bare = move.promotion is None or (move.promotion == chess.KNIGHT and name == "lc0-1858")
        uci = chess.Move(move.from_square, target, None if bare else move.promotion).uci()
        if uci in names:
            looked_up.add(names.index(uci))
    weights = {slot: np.exp(logits[slot]) for slot in looked_up}
    wrong = sum(float(weight) for slot, weight in weights.items() if slot not in legal)
    best, right = max(looked_up, key=lambda slot: logits[slot]), max(legal, key=lambda slot: logits[slot])
    return float(wrong / sum(weights.values())), best != right


@pytest.mark.parametrize("name", ["lc0-1858", "movemask-1880"])
@pytest.mark.parametrize(
    "fen",
    [
        "r3k2r/pppq1ppp/2n2n2/3pp3/3PP3/2N2N2/PPPQ1PPP/R3K2R b KQkq - 4 9",
        "4k3/8/8/8/8/8/1p1p4/6K1 b - - 0 1",
        "8/8/8/8/3k4/8/p7/K7 b - - 0 1",
    ],
)
def test_unmirrored_is_black_to_move_bug(fen: str, name: str) -> None:
    vocab, position = vocabulary(name), Position.read(fen)
    _, slots = vocab.legal_slots(position)
    logits = np.random.default_rng(4).normal(size=(1, len(vocab))) * 3
    result = measure(["unmirrored"], UnmaskedLogits(logits, slots, np.array([0, len(slots)])), vocab, np.array([True]))
    expected, flipped = unmirrored_by_hand(position, logits[0], name)
    assert result["unmirrored"].leaked[0] == pytest.approx(expected, rel=1e-12)
    assert result["unmirrored"].flipped[0] == flipped


def test_unmirrored_is_zero_for_white_and_needs_mirroring() -> None:
    for name, leaked in (("movemask-1880", 0.0), ("uci-1968", None)):
        vocab = vocabulary(name)
        _, slots = vocab.legal_slots(Position.read())
        logits = np.zeros((1, len(vocab)))
        result = measure(["unmirrored"], UnmaskedLogits(logits, slots, np.array([0, 20])), vocab, np.array([False]))
        assert result["unmirrored"].figure(0) == Figure(leaked, False, None if leaked is None else 0.0)


@given(drawn_batches(), st.sampled_from([0.0, 1e-3, 0.2]))
def test_heavy_lists_all_above_threshold_in_order(batch: Batch, least: float) -> None:
    logits, mask = batch
    heavy = UnmaskedLogits(logits, *ragged_of_mask(mask)).heavy(least)
    for row in range(len(logits)):
        own = heavy.rows([row])
        result = list(zip(own.slots, own.masses, strict=True))
        weights = np.exp(logits[row] - logits[row].max())
        share = weights / weights.sum()
        expected = [
            slot for slot in range(len(share)) if share[slot] >= least and share[slot] > 0 and not mask[row, slot]
        ]
        if all(abs(share[slot] / max(least, 1e-300) - 1) > 1e-9 for slot in range(len(share))):
            assert sorted(slot for slot, _ in result) == expected
        assert [mass for _, mass in result] == pytest.approx([share[slot] for slot, _ in result], rel=1e-9)
        assert [mass for _, mass in result] == sorted((mass for _, mass in result), reverse=True)


def test_all_kinds_at_once_equal_row_by_row() -> None:
    vocab = vocabulary("movemask-1880")
    fens = [chess.STARTING_FEN, "4k3/8/8/8/8/8/1p1p4/6K1 b - - 0 1", "7k/8/8/8/8/8/8/K7 b - - 0 1"]
    positions = [Position.read(fen) for fen in fens]
    logits = np.random.default_rng(5).normal(size=(3, len(vocab))).astype(np.float32) * 4
    together = leakages(positions, vocab, logits, kinds=KINDS)
    assert [set(leakage.figures) for leakage in together] == [set(KINDS)] * 3
    for row, position in enumerate(positions):
        alone = leakages([position], vocab, logits[row : row + 1], kinds=KINDS)
        for kind in KINDS:
            one, other = together[row].figures[kind], alone[0].figures[kind]
            assert one.leaked == pytest.approx(other.leaked, rel=1e-12, abs=0)
            assert (one.flipped, one.kl is None) == (other.flipped, other.kl is None)
    with pytest.raises(ValueError, match="no 'other'"):
        leakages(positions, vocab, logits, kinds=["other"])
