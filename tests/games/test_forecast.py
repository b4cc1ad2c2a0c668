"""Forecasts: the value from one ply ahead."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.games.test_think_time import RULES
from tests.server.asking import asked

#: Every rule leaves other moves or other probabilities here.
FEN = "r1bqkbnr/pp1ppppp/2n5/2p5/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 12"


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_forecast_does_not_depend_on_the_rule(shipped: TestClient, rule: dict[str, Any]) -> None:
    plain = asked(shipped, fen=FEN, include=["forecast"])["forecast"]
    assert asked(shipped, fen=FEN, include=["forecast"], **rule)["forecast"] == pytest.approx(plain, abs=1e-4)


def test_forecast_is_mean_value_after_likeliest_moves(shipped: TestClient) -> None:
    """White mates on d8, or Black takes it all on d5: what the network thinks of the position alone sees neither."""
    fen, elo = "6k1/5ppp/8/3q4/8/8/5PPP/3R2K1 w - - 0 1", {"self": 2200, "opponent": 2200}
    plain = asked(shipped, fen=fen, elo=elo)
    forecast = asked(shipped, fen=fen, elo=elo, include=["forecast"])
    assert "forecast" not in plain
    assert forecast["value"] == plain["value"]
    after = [asked(shipped, fen=fen, moves=[move["uci"]], elo=elo) for move in plain["moves"][:3]]
    weights = [move["probability"] for move in plain["moves"][:3]]
    for name, other in (("win", "loss"), ("draw", "draw"), ("loss", "win")):
        values = [0.0 if one["status"] == "checkmate" else one["value"][other] for one in after]
        values = [
            float(name == "win") if one["status"] == "checkmate" else v for one, v in zip(after, values, strict=True)
        ]
        rest = (1 - sum(weights)) * plain["value"][name]  # what is not looked at
        mean = rest + sum(weight * value for weight, value in zip(weights, values, strict=True))
        assert forecast["forecast"][name] == pytest.approx(mean, abs=1e-4)
    pgn = f'[SetUp "1"]\n[FEN "{fen}"]\n[WhiteElo "2200"]\n\n1. Rd2 Qxd2 *'
    moves = asked(shipped, "/v1/games", pgn=pgn, include=["forecast"])["games"][0]["moves"]
    assert moves[0]["forecast"]["score"] == pytest.approx(forecast["forecast"]["score"], abs=1e-4)
    assert "forecast" not in asked(shipped, "/v1/games", pgn=pgn)["games"][0]["moves"][0]
    scholars = "r1bqkb1r/pppp1ppp/2n2n2/4p2Q/2B1P3/8/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
    mate = asked(shipped, fen=scholars, elo=2200, include=["forecast"])
    assert mate["forecast"]["win"] > 0.85 > mate["value"]["win"] + 0.1  # the mate is not seen before it is played
    over = asked(shipped, fen="7k/6Q1/6K1/8/8/8/8/8 b - - 0 1", include=["forecast"])
    assert "forecast" not in over
