"""Held-out figures: samples, ranks, Brier score, bends."""

from __future__ import annotations

import chess
import numpy as np
import pytest
from scipy.stats import sem, ttest_rel

from movemask.board.position import Position
from movemask.encoding.vocabularies import vocabulary
from tests.ground_truth import random_game
from tests.networks import fake_model, fixed_model
from tests.training.test_data import csv_file, data_of, row
from training import strength
from training.config import Data
from training.data import make_shards
from training.measure import Measured, Nearest, Numbers, measure
from training.report import bends, differences
from training.samples import Sample, samples


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("measure")
    rows = [row(i, moves=" ".join(m.uci() for m in random_game(i, 90)), result="0-1") for i in range(30)]
    shards = data_of(folder, csv_file(folder, rows))
    make_shards(shards)
    return shards


def test_samples_match_games(data: Data) -> None:
    sampled = samples(data, "train", 5, seed=1)
    assert len(sampled) >= 5 * 25
    games = {" ".join(move.uci() for move in random_game(i, 90)) for i in range(30)}
    for sample in sampled:
        board = sample.position.board
        assert sample.played in board.legal_moves
        assert len(board.move_stack) == min(8, sample.ply)
        line = " ".join(move.uci() for move in (*board.move_stack, sample.played))
        assert any(line in game for game in games)
        assert sample.elo.self == (1500 if board.turn == chess.WHITE else 1610)
        assert sample.result == (2 if board.turn == chess.WHITE else 0)
    assert [s.position.fen for s in samples(data, "train", 5, seed=1)] == [s.position.fen for s in sampled]


def second_opinion(sampled: list[Sample]) -> tuple[list[int], list[float]]:
    """Rank and surprise from the model's own logits, one position at a time, over a dense masked softmax."""
    model = fake_model()
    ranks, surprises = [], []
    for sample in sampled:
        position = Position(sample.position.board.copy(stack=False))
        batch = model.whole_batch([position], [None])
        logits = model.run(batch).logits[0].astype(np.float64)
        masked = np.full(len(logits), -np.inf)
        masked[batch.slots] = logits[batch.slots]
        weights = np.exp(masked)
        slot = model.vocabulary.slot(sample.played, position.board)
        ranks.append(int((masked > masked[slot]).sum()))
        surprises.append(float(-np.log(weights[slot] / weights.sum())))
    return ranks, surprises


def test_ranks_and_surprises_match_dense_softmax(data: Data) -> None:
    sampled = samples(data, "train", 3, seed=2)
    measured = measure(fake_model(), sampled, history=False)
    ranks, surprises = second_opinion(sampled)
    assert measured.rank.tolist() == ranks
    np.testing.assert_allclose(measured.surprise, surprises, rtol=1e-10)
    assert measured.top(1) == pytest.approx(np.mean(np.array(ranks) == 0))
    assert measured.cross_entropy() == pytest.approx(np.mean(surprises))
    assert measured.brier() is None
    assert measured.errors() == pytest.approx([sem(np.array(ranks) == 0), sem(surprises)])
    bins = [int(15 * confidence) for confidence in measured.confidence]
    by_hand = sum(
        abs(sum(c - (r == 0) for c, r, b in zip(measured.confidence, ranks, bins, strict=True) if b == one))
        for one in set(bins)
    )
    assert measured.calibration_error() == pytest.approx(by_hand / len(sampled))


def test_nearest_network_by_rating(data: Data) -> None:
    sampled = samples(data, "train", 3, seed=2)  # White has 1500, Black 1610
    low, high = (fixed_model(np.random.default_rng(seed).normal(size=1880), f"net-{seed}") for seed in (1, 2))
    mixed = measure(Nearest("nearest", {1100: low, 1500: high}), sampled, history=False)
    one, other = measure(low, sampled, history=False), measure(high, sampled, history=False)
    assert mixed.surprise.tolist() == other.surprise.tolist()
    mixed = measure(Nearest("nearest", {1450: low, 1560: high}), sampled, history=False)
    white = mixed.rating == 1500
    assert 0 < white.sum() < len(sampled)
    assert mixed.surprise.tolist() == np.where(white, one.surprise, other.surprise).tolist()
    assert mixed.raw.tolist() == np.where(white, one.raw, other.raw).tolist()
    assert mixed.calibration_error() != one.calibration_error()


def test_brier_score_of_perfect_value_and_base_rate() -> None:
    result = np.array([0, 0, 1, 2, -1])
    knows = np.eye(3)[np.maximum(result, 0)]
    nothing = np.zeros(5)
    measured = Measured(nothing.astype(np.int64), nothing, nothing, nothing, result, knows, nothing)
    brier = measured.brier()
    assert brier is not None
    assert brier[0] == 0
    rates = np.array([2, 1, 1]) / 4
    assert brier[1] == pytest.approx(np.mean([((rates - row) ** 2).sum() for row in np.eye(3)[[0, 0, 1, 2]]]))


def test_points_of_higher_rating() -> None:
    """White has Qh5xf7 mate and no other legal move matters: a network that knows it wins with both ratings."""
    mate = [chess.Move.from_uci(uci) for uci in ("e2e4", "e7e5", "d1h5", "b8c6", "f1c4", "g8f6")]
    logits = np.zeros(1880)
    logits[vocabulary("movemask-1880").names().index("h5f7")] = 100
    played = strength.match(fixed_model(logits), [mate], seed=1)
    assert played.scores.tolist() == [1, 0]  # White is the higher rating in the first game
    assert played.endings == {"checkmate": 2}


def test_bends_of_lines_and_teeth() -> None:
    """Teeth in the page's chart: a network whose integers round along the ratings."""
    share = np.linspace(0.2, 0.6, 5)
    straight = np.stack([share, 1 - share], axis=1)
    assert bends([straight]) == pytest.approx(0, abs=1e-12)
    tooth = straight + np.array([[0, 0], [0, 0], [0.03, -0.03], [0, 0], [0, 0]])
    assert bends([straight, tooth]) == pytest.approx((0.03 + 0.06 + 0.03) * 2 / 3 / 2)


def of_surprise(surprise: Numbers) -> Measured:
    nothing = np.zeros(len(surprise))
    integers = nothing.astype(np.int64)
    return Measured(integers, surprise, nothing, nothing, integers, None, nothing)


def test_difference_of_two_networks_is_paired() -> None:
    generator = np.random.default_rng(1)
    own = generator.exponential(1.5, 200)
    other = own + generator.normal(0.1, 0.3, 200)
    difference, error = of_surprise(own).better_than(of_surprise(other))
    assert difference == pytest.approx(other.mean() - own.mean())
    assert difference / error == pytest.approx(ttest_rel(other, own).statistic)


def test_report_compares_the_first_network_alike_with_moves() -> None:
    columns = {"a": 1.0, "a + moves": 0.5, "b": 1.25, "b + moves": 0.875}
    table = differences({name: of_surprise(np.array([mean, mean])) for name, mean in columns.items()})
    assert "| b | 0.2500 ± 0.0000 |\n| b + moves | 0.3750 ± 0.0000 |" in table
    assert differences({"a": of_surprise(np.ones(2))}) == ""
