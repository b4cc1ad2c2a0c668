"""What a reader of an evaluated game would lose: what moves cost beside how human they are."""

from __future__ import annotations

import io
import math
from typing import Any

import chess.engine
import chess.pgn
import pytest
from fastapi.testclient import TestClient

from tests.conftest import ROOT
from tests.server.asking import asked

SAMPLE = (ROOT / "tests" / "data" / "evaluated.pgn").read_text()

#: Légal's trap; the evaluations are made up, but for the mate.
LEGAL = """[WhiteElo "1000"]
[BlackElo "1000"]

1. e4 {[%eval 0.3]} e5 {[%eval 0.3]} 2. Nf3 {[%eval 0.3]} d6 {[%eval 0.4]} 3. Bc4 {[%eval 0.4]} Bg4 {[%eval 0.4]}
4. Nc3 {[%eval 0.5]} g6 {[%eval 0.6]} 5. Nxe5 {[%eval 0.6]} Bxd1 {[%eval #2]} 6. Bxf7+ {[%eval #1]} Ke7 {[%eval #1]}
7. Nd5# 1-0"""


def judged(shipped: TestClient, pgn: str) -> list[dict[str, Any]]:
    moves: list[dict[str, Any]] = asked(shipped, "/v1/games", pgn=pgn)["games"][0]["moves"]
    return moves


def test_a_moves_loss_is_by_lichess_formula_and_its_marks_by_the_thresholds(shipped: TestClient) -> None:
    moves = judged(shipped, SAMPLE)
    game = chess.pgn.read_game(io.StringIO(SAMPLE))
    assert game is not None
    scores = [node.eval() for node in game.mainline()]
    assert moves[0]["source"] == "network"  # the position before it has no evaluation
    for before, after, move in zip(scores, scores[1:], moves[1:], strict=False):
        assert before is not None
        assert after is not None
        # https://lichess.org/page/accuracy: win % = 50 + 50 * (2 / (1 + exp(-0.00368208 * centipawns)) - 1)
        win = [1 / (1 + math.exp(-0.00368208 * (one.white().score() or 0))) for one in (before, after)]
        fall = win[0] - win[1] if move["turn"] == "white" else win[1] - win[0]
        assert move["lost"] == pytest.approx(max(0, fall), abs=0.001)
        assert move["source"] == "evaluations"
        assert move.get("mark") == ("blunder" if move["lost"] >= 0.2 else "mistake" if move["lost"] >= 0.1 else None)
        assert ("by_rating" in move) == (move["lost"] >= 0.1)


def test_a_mistake_that_most_people_make_is_both(shipped: TestClient) -> None:
    trap = judged(shipped, LEGAL)[9]
    assert (trap["san"], trap["mark"]) == ("Bxd1", "blunder")
    assert trap["probability"] > 0.5
    assert [point["rating"] for point in trap["by_rating"]] == [800, 1200, 1600, 2000, 2400]
    sweep = asked(
        shipped, "/v1/policy/sweep", moves=[move["uci"] for move in judged(shipped, LEGAL)[:9]], ratings=[800]
    )
    (taken,) = (move for move in sweep["moves"] if move["uci"] == trap["uci"])
    assert trap["by_rating"][0]["probability"] == pytest.approx(taken["probabilities"][0], abs=1e-9)
    assert judged(shipped, LEGAL)[12]["lost"] == 0  # mate needs no evaluation


def test_an_annotated_game_tells_it_and_can_be_annotated_again(shipped: TestClient) -> None:
    def annotated(pgn: str) -> str:
        return shipped.post("/v1/games", json={"pgn": pgn}, headers={"Accept": "application/x-chess-pgn"}).text

    text = annotated(LEGAL)
    assert "? loses 10 points or more of 100, ?? 20" in " ".join(text.split())
    game = chess.pgn.read_game(io.StringIO(text))
    assert game is not None
    comment = list(game.mainline())[9].comment
    assert "[%eval #2]" in comment
    assert "; blunder: loses " in comment
    assert "5... Bxd1 $4 " in " ".join(text.split())
    assert comment.count(" % at ") == 5
    assert annotated(text) == text
