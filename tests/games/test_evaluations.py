"""Reports on games with evaluations in the PGN."""

from __future__ import annotations

import io
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


def judged(client: TestClient, pgn: str, **more: Any) -> dict[str, Any]:
    game: dict[str, Any] = asked(client, "/v1/games", pgn=pgn, **more)["games"][0]
    return game


def test_pgn_evaluations_mark_moves(shipped: TestClient) -> None:
    game = judged(shipped, SAMPLE)
    moves = game["moves"]
    assert "lost" not in moves[0]  # the position before it has no evaluation
    assert game["scores"][0] is None
    for before, after, move in zip(game["scores"][1:-1], game["scores"][2:], moves[1:], strict=True):
        fall = before - after if move["turn"] == "white" else after - before
        assert move["lost"] == pytest.approx(max(0, fall))
        assert move["source"] == "evaluations"
    assert {move.get("mark") for move in moves} == {None, "inaccuracy", "mistake", "blunder"}


def test_probable_move_can_be_a_mistake(shipped: TestClient) -> None:
    game = judged(shipped, LEGAL)
    trap = game["moves"][9]
    assert (trap["san"], trap["mark"]) == ("Bxd1", "blunder")
    assert trap["probability"] > 0.5
    (moment,) = game["moments"]
    assert [point["rating"] for point in moment["by_rating"]] == [800, 1200, 1600, 2000, 2400]
    before = [move["uci"] for move in game["moves"][:9]]
    sweep = asked(shipped, "/v1/policy/sweep", moves=before, ratings=[800])
    (swept,) = (move for move in sweep["moves"] if move["uci"] == trap["uci"])
    assert moment["by_rating"][0]["probability"] == pytest.approx(swept["probabilities"][0], abs=1e-9)
    assert game["moves"][12]["lost"] == 0  # mate needs no evaluation


def test_annotate_twice_with_evaluations(shipped: TestClient) -> None:
    def annotated(pgn: str) -> str:
        return shipped.post("/v1/games", json={"pgn": pgn}, headers={"Accept": "application/x-chess-pgn"}).text

    text = annotated(LEGAL)
    assert "?! cost 5 points or more of 100, ? 10, ?? 15" in " ".join(text.split())
    game = chess.pgn.read_game(io.StringIO(text))
    assert game is not None
    comment = list(game.mainline())[9].comment
    assert "[%eval #2]" in comment
    assert "; blunder: cost " in comment
    assert "5... Bxd1 $4 " in " ".join(text.split())
    assert comment.count(" % at ") == 5
    assert annotated(text) == text


def test_ratings_give_the_moves_of_the_middle_at_nine_ratings(shipped: TestClient) -> None:
    """From move 7 on, as the network itself answers, and charged."""
    moves = "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 6. Re1 b5 7. Bb3 d6 8. c3 O-O"
    game = judged(shipped, f'[WhiteElo "1000"]\n\n{moves} *', include=["ratings"])
    assert game["ratings"] == [800, 1000, 1200, 1400, 1600, 1800, 2000, 2200, 2400]
    assert [move["ply"] for move in game["moves"] if "at_ratings" in move] == [13, 14, 15, 16]
    before = [move["uci"] for move in game["moves"][:14]]
    sweep = asked(shipped, "/v1/policy/sweep", moves=before, ratings=[1400])
    (played,) = (move for move in sweep["moves"] if move["uci"] == game["moves"][14]["uci"])
    assert game["moves"][14]["at_ratings"][3] == pytest.approx(played["probabilities"][0], abs=1e-6)
    assert {move["phase"] for move in game["moves"]} == {"opening"}
    assert "ratings" not in judged(shipped, f"{moves} *")
