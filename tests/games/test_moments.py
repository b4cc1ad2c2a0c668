"""Key moves of a game."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import chess.pgn
import pytest
from fastapi.testclient import TestClient

from movemask.games.reports import percent
from movemask.schemas.answers import GamesOut
from tests.games.test_evaluations import LEGAL, SAMPLE
from tests.processes import run
from tests.server.asking import asked

UNEVALUATED = re.sub(r"\[%eval [^]]*\]", "", SAMPLE)


def judged(client: TestClient, pgn: str, **more: Any) -> dict[str, Any]:
    answer = asked(client, "/v1/games", pgn=pgn, **more)
    GamesOut.model_validate(answer)
    game: dict[str, Any] = answer["games"][0]
    return game


@pytest.mark.parametrize("pgn", [SAMPLE, LEGAL], ids=["a real game", "Légal's trap"])
def test_key_moves_are_sorted_by_cost(shipped: TestClient, pgn: str) -> None:
    game = judged(shipped, pgn)
    marked = {move["ply"]: move for move in game["moves"] if move.get("mark") in ("mistake", "blunder")}
    assert 0 < len(marked) <= 5
    assert {one["ply"] for one in game["moments"]} == marked.keys()
    costs = [one["lost"] for one in game["moments"]]
    assert costs == sorted(costs, reverse=True)
    for one in game["moments"]:
        move = marked[one["ply"]]
        assert (one["mark"], one["lost"]) == (move["mark"], move["lost"])
        number = f"{(one['ply'] + 1) // 2}{'.' if move['turn'] == 'black' else '. '}"
        assert one["text"].startswith(f"{number}{'..' if move['turn'] == 'black' else ''}{move['san']} ")
        assert f"cost {100 * move['lost']:.0f} point" in one["text"]
        other = "|".join(map(re.escape, {percent(share["probability"]) for share in one["by_rating"]}))
        who = rf" {re.escape(percent(move['probability']))} of players rated \d+ play it, at \d+ ({other})\.$"
        assert re.search(who, one["text"]), "shares are written as in the summary and in comments"


def test_key_moves_without_evaluations(shipped: TestClient) -> None:
    assert judged(shipped, UNEVALUATED)["moments"] == []
    (one,) = judged(shipped, "1. f3 e5 2. g4 Qh4# 0-1")["moments"]
    assert (one["ply"], one["mark"], one["lost"]) == (3, None, None)
    assert one["text"].startswith("2. g4 allows mate in one. ")


def test_at_most_five_moments(shipped: TestClient) -> None:
    blunders = (
        "1. e4 {[%eval 0]} e5 {[%eval 0]} 2. Ke2 {[%eval -9]} Ke7 {[%eval 9]} 3. Kd3 {[%eval -9]} Kd6 {[%eval 9]} "
    )
    blunders += "4. Kc4 {[%eval -9]} Kc6 {[%eval 9]} 5. a4 {[%eval -9]} a5 {[%eval 9]} *"
    game = judged(shipped, blunders)
    assert sum("mark" in move for move in game["moves"]) == 8
    assert len(game["moments"]) == 5


def test_only_move_is_no_moment(shipped: TestClient) -> None:
    only = '[SetUp "1"]\n[FEN "k7/8/8/8/8/8/1r6/7K w - - 0 1"]\n\n{[%eval 0]} 1. Kg1 {[%eval -9]} *'
    assert judged(shipped, only)["moves"][0]["lost"] == 0
    assert judged(shipped, only)["moments"] == []


def test_moments_of_network_without_ratings(client: TestClient) -> None:
    moments = judged(client, SAMPLE)["moments"]
    assert len(moments) >= 3
    assert all(one["text"].endswith("% of players play it.") for one in moments)
    assert not any("by_rating" in one for one in moments)


def test_annotated_moments_match_and_are_replaced(shipped: TestClient, tmp_path: Path) -> None:
    file, other = tmp_path / "game.pgn", tmp_path / "other.pgn"
    file.write_text(SAMPLE)
    assert run("annotate", file, "--elo", "800", "--out", other).exit_code == 0
    again = run("annotate", other).stdout
    assert again == run("annotate", file).stdout
    game = chess.pgn.read_game(io.StringIO(again))
    assert game is not None
    texts = re.findall(r"; moments: (.*?); White ", game.comment)
    moments = judged(shipped, SAMPLE)["moments"]
    assert texts == ["; ".join(f"{one['mark']}: {one['text'][:-1]}" for one in moments)]
    assert again.count("moments: ") == 1
    assert other.read_text() != again


def test_share_without_exponent() -> None:
    shares = {0.41: "41.0 %", 0.0994: "9.9 %", 0.003: "0.30 %", 1e-5: "0.0010 %", 9e-6: "< 0.001 %", 1e-12: "< 0.001 %"}
    assert {share: percent(share) for share in shares} == shares
