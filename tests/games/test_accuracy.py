"""Accuracy by lichess's formula, and the summary of a game in two sentences."""

from __future__ import annotations

import math

import chess
import numpy as np
import pytest
from fastapi.testclient import TestClient

from movemask.board.pgn import Game, read_games
from movemask.games.accuracy import accuracies, accuracy_of
from movemask.games.costs import Costs
from tests.games.test_evaluations import SAMPLE, judged


def costs_of(pgn: str) -> Costs:
    (game,) = read_games(pgn)
    assert isinstance(game, Game)
    return Costs.of(game)


def test_accuracy_of_a_move_follows_the_published_formula() -> None:
    """lichess.org/page/accuracy, and a point for the engine's errors, as in lichess's code."""
    assert accuracy_of(0) == 100
    assert accuracy_of(0.1) == pytest.approx(103.1668 * math.exp(-0.04354 * 10) - 3.1669 + 1, abs=0.01)
    assert accuracy_of(1) == 0


def test_accuracies_match_a_second_implementation() -> None:
    costs = costs_of(SAMPLE)
    percents = 100 * np.array([0.5138, *costs.scores[1:]], dtype=float)
    size = int(np.clip(len(percents) // 10, 2, 8))
    windows = [percents[:size]] * (size - 2) + list(np.lib.stride_tricks.sliding_window_view(percents, size))
    weights = np.clip([window.std() for window in windows], 0.5, 12)
    moves = [100.0, *(accuracy_of(cost.lost or 0.0) for cost in list(costs)[1:])]
    expected = {}
    for side, first in ((chess.WHITE, 0), (chess.BLACK, 1)):
        own, weight = np.array(moves[first::2]), weights[: len(moves)][first::2]
        expected[side] = (np.average(own, weights=weight) + len(own) / (1 / own).sum()) / 2
    assert accuracies(costs) == pytest.approx(expected, abs=0.05)


def test_accuracy_needs_every_cost() -> None:
    evaluated = "1. e4 {[%eval 0.3]} e5 {[%eval 0.3]} 2. Nf3 {[%eval 0.3]} "
    result = accuracies(costs_of(f"{evaluated} *"))
    assert result == {chess.WHITE: pytest.approx(100, abs=1), chess.BLACK: 100}
    assert accuracies(costs_of(f"{evaluated} Nc6 *")) == {chess.WHITE: None, chess.BLACK: None}
    only_white = '[SetUp "1"]\n[FEN "4k3/8/8/8/8/8/8/4K2R w - - 0 1"]\n\n1. Rh8# *'
    assert accuracies(costs_of(only_white))[chess.BLACK] is None


def test_summary_names_accuracy_and_the_costliest_move(shipped: TestClient) -> None:
    game = judged(shipped, SAMPLE)
    accuracy, costliest = game["summary"].split(". ", 1)
    assert accuracy == (
        f"Accuracy by lichess's formula: White {game['white']['accuracy']:.0f}\N{NO-BREAK SPACE}%, "
        f"Black {game['black']['accuracy']:.0f}\N{NO-BREAK SPACE}%"
    )
    worst = max(game["moves"], key=lambda move: move.get("lost", 0))
    assert f"{worst['san']} cost most, {int(100 * worst['lost'] + 1e-9)} points when " in costliest
    assert judged(shipped, "1. e4 e5 *")["summary"] is None
