"""What a player would lose who learns from the review: what a move cost, by the rules first, then by the network."""

from __future__ import annotations

import csv
from typing import Any

import chess
import pytest
from fastapi.testclient import TestClient

from benchmarks import review
from tests.server.asking import asked

STRONG = {"self": 2500, "opponent": 2500}

#: White moves the rook away and the queen takes it.
HANGS = "5rk1/5pp1/8/3q4/8/8/5PPP/3R2K1 w - - 0 1"


def judged(client: TestClient, moves: str, fen: str = "", **more: Any) -> list[dict[str, Any]]:
    tags = f'[SetUp "1"]\n[FEN "{fen}"]\n\n' if fen else ""
    (game,) = asked(client, "/v1/games", pgn=f"{tags}{moves} *", **more)["games"]
    found: list[dict[str, Any]] = game["moves"]
    return found


@pytest.mark.parametrize(
    ("moves", "fen", "fact"),
    [
        ("1. f3 e5 2. g4", "", "allows_mate"),
        ("1. e4 e5 2. Bc4 Nc6 3. Qh5 Nf6", "", "allows_mate"),
        ("1. Qg6", "7k/8/5K2/8/8/8/8/6Q1 w - - 0 1", "stalemates"),
        ("1. Kxe2", "8/8/8/8/8/8/4r3/2k1K3 w - - 0 1", "draws"),
        ("1. Kg1", "8/8/8/8/8/6k1/1r6/7K w - - 0 1", None),  # Black mates, and there is no other move
        ("1. Ra2", "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", "misses_mate"),
    ],
)
def test_what_the_rules_know(shipped: TestClient, moves: str, fen: str, fact: str | None) -> None:
    assert judged(shipped, moves, fen)[-1].get("fact") == fact


def test_a_stalemate_and_a_mate_in_one_are_blunders_however_often_people_play_them(shipped: TestClient) -> None:
    won = "7k/8/5K2/8/8/8/8/6Q1 w - - 0 1"
    (move,) = judged(shipped, "1. Qg6", won)
    assert (move["mark"], move["source"]) == ("blunder", "rules")
    assert move["lost"] == pytest.approx(0.5)  # a mate in one was there
    *_, move = judged(shipped, "1. f3 e5 2. g4")
    assert move["mark"] == "blunder"
    assert move["better"]["san"] != "g4"


def test_an_avoidable_mate_in_one_is_a_mistake_in_a_lost_game_and_a_forced_one_costs_nothing(
    shipped: TestClient,
) -> None:
    (move,) = judged(shipped, "1. Kg1", "4r1k1/5ppp/8/8/8/8/q5PP/7K w - - 0 1")
    assert (move["mark"], move["fact"]) == ("mistake", "allows_mate")
    assert move["lost"] < 0.1
    (move,) = judged(shipped, "1. Kg1", "8/8/8/8/8/6k1/1r6/7K w - - 0 1")
    assert "mark" not in move
    assert move["lost"] == 0


def test_checkmate_costs_nothing(shipped: TestClient) -> None:
    assert judged(shipped, "1. e4 e5 2. Qh5 Nc6 3. Bc4 Nf6 4. Qxf7#")[-1]["lost"] == 0


def test_the_network_compares_the_likeliest_moves_after_the_likeliest_replies(shipped: TestClient) -> None:
    """The same, by single positions."""

    def after(move: str) -> float:
        """White's expected score: the values after two replies, the rest by the position's own."""
        position = asked(shipped, fen=HANGS, moves=[move], elo=STRONG)
        if position["status"] == "checkmate":
            return 1.0
        replies = position["moves"][:2]
        rest = 1 - sum(reply["probability"] for reply in replies)
        score: float = rest * (1 - position["value"]["score"])
        for reply in replies:
            following = asked(shipped, fen=HANGS, moves=[move, reply["uci"]], elo=STRONG)
            mated = following["status"] == "checkmate"
            score += reply["probability"] * (0 if mated else following["value"]["score"])
        return score

    (move,) = judged(shipped, "1. Rd2", HANGS)
    assert (move["mark"], move["source"]) == ("blunder", "network")
    tried = asked(shipped, fen=HANGS, elo=STRONG)["moves"][:2]
    scores = {one["uci"]: after(one["uci"]) for one in tried}
    assert move["lost"] == pytest.approx(max(scores.values()) - after("d1d2"), abs=1e-4)
    assert move["better"]["uci"] == max(scores, key=lambda uci: scores[uci])
    (move,) = judged(shipped, "1. Rxd5", HANGS)
    assert "mark" not in move


def test_hardly_a_move_that_costs_nothing_is_called_a_mistake(shipped: TestClient) -> None:
    """At most 10 of 200, by Stockfish. The benchmark plays the moves before them too."""
    with review.COSTLESS.open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 200
    games = []
    for row in rows:
        board = chess.Board(row["fen"])
        san = board.variation_san([board.parse_uci(row["move"])])
        games.append(f'[SetUp "1"]\n[FEN "{row["fen"]}"]\n[WhiteElo "1200"]\n\n{san} *\n')
    found = asked(shipped, "/v1/games", pgn="\n".join(games))["games"]
    assert sum("mark" in game["moves"][0] for game in found) <= 10
