"""Maia-3 5M: its policy through the service's code."""

from __future__ import annotations

import random

import chess
import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from movemask.board.moves import uci_of
from movemask.board.position import Elo, Position
from movemask.evaluate import evaluate_positions
from movemask.network.model import Model
from movemask.network.registry import load_registry
from tests.conftest import ROOT
from tests.ground_truth import random_game
from tests.processes import run

NETWORK = ROOT.parent / "shared" / "maia3" / "maia3-5m.onnx"
pytestmark = pytest.mark.skipif(not NETWORK.exists(), reason="maia-3: ../shared/maia3 is not here")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("m")
    result = run("models", "add", NETWORK, "--models-dir", folder)
    assert result.exit_code == 0, result.output
    for words in ("weights copied: 19.9 MiB", "the ratings themselves", "not used: logits_ponder", "1 is freed"):
        assert words in result.output
    return load_registry(folder, None, 1).get("maia3-5m")


def tokens(boards: list[chess.Board]) -> NDArray[np.float32]:
    """Eight boards, oldest first, each with its own mover at the bottom: `[1, 64, 96]`, by what the README says."""
    result = np.zeros((1, 64, 96), dtype=np.float32)
    for block, board in enumerate([boards[0]] * (8 - len(boards)) + boards):
        view = board if board.turn == chess.WHITE else board.mirror()
        for square, piece in view.piece_map().items():
            result[0, square, 12 * block + (piece.piece_type - 1) + (0 if piece.color == chess.WHITE else 6)] = 1
    return result


def slot(move: chess.Move, turn: chess.Color) -> int:
    """From and to, then the promotions by file, file and piece: Maia-3's own numbers."""
    source, target = (s if turn == chess.WHITE else s ^ 56 for s in (move.from_square, move.to_square))
    if move.promotion is None:
        return 64 * source + target
    piece = {chess.QUEEN: 0, chess.ROOK: 1, chess.BISHOP: 2, chess.KNIGHT: 3}[move.promotion]
    return 4096 + (source % 8) * 32 + (target % 8) * 4 + piece


@pytest.mark.deep
@pytest.mark.parametrize("count", [500])
def test_policy_matches_network_with_and_without_history(model: Model, count: int) -> None:
    session, rng = ort.InferenceSession(NETWORK), random.Random(4)
    promotions = 0
    for history in (True, False):
        positions, elos, expected = [], [], []
        for number in range(count):
            board, boards = chess.Board(), [chess.Board()]
            for move in random_game(number, 30 + 70 * (number % 2))[:-1]:  # with a legal move left
                board.push(move)
                boards.append(board.copy(stack=False))
            own, other = rng.randrange(600, 2601), rng.randrange(600, 2601)
            feeds = {
                "tokens": tokens(boards[-8:] if history else boards[-1:]),
                "self_elo": np.array([own]),
                "oppo_elo": np.array([other]),
            }
            (logits,) = session.run(["logits_move"], feeds)
            legal = [logits[0, slot(move, board.turn)] for move in board.legal_moves]
            weights = np.exp(np.array(legal, dtype=np.float64) - max(legal))
            uci = [move.uci() for move in board.legal_moves]
            promotions += sum(len(name) == 5 for name in uci)
            expected.append(dict(zip(uci, weights / weights.sum(), strict=True)))
            positions.append(Position(board if history else board.copy(stack=False)))
            elos.append(Elo(own, other))
        evaluated = evaluate_positions(model, positions, elos)
        codes, probabilities, indptr, _ = evaluated.policies.lists
        for row, policy in enumerate(expected):
            span = slice(indptr[row], indptr[row + 1])
            result = dict(zip(uci_of(codes[span]), probabilities[span], strict=True))
            assert result == pytest.approx(policy, abs=2e-5)
    assert promotions > count // 5
