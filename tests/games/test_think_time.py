"""Human thinking times, of the function, the engine and `/v1/move`."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from typing import Any

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from movemask.board.position import Position
from movemask.games.think_time import Clock, think_time
from movemask.local.network import Network
from movemask.network.files import shipped_models
from movemask.uci.engine import Engine
from movemask.uci.options import Options
from tests.conftest import Serve
from tests.server.asking import asked

RULES: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.1},
    {"top_k": 1},
    {"top_p": 0.5},
    {"min_p": 0.5},
    {"normalizer": "sparsemax"},
]

MIDDLEGAME = "r1bq1rk1/2p1bppp/p1np1n2/1p2p3/4P3/1BP2N1P/PP1P1PP1/RNBQR1K1 b - - 0 9"


def seconds(network: Network, clock: Clock, fen: str = MIDDLEGAME, *moves: str, play: str | None = None) -> float:
    board = chess.Board(fen)
    for san in moves:
        board.push_san(san)
    policy = network.policy(board)
    move = policy.best if play is None else board.parse_san(play)
    assert move is not None
    return think_time(Position(board), move, policy.probabilities.values(), clock)


@given(st.floats(0, 7200), st.floats(0, 60), st.lists(st.floats(0, 1), min_size=1, max_size=218))
def test_think_time_is_at_most_a_fifth_of_the_clock(remaining: float, increment: float, weights: list[float]) -> None:
    total = sum(weights) or 1.0
    position = Position(chess.Board(MIDDLEGAME))
    move = next(iter(position.board.legal_moves))
    thought = think_time(position, move, [weight / total for weight in weights], Clock(remaining, increment))
    assert 0 <= thought <= max(0, 0.2 * (remaining - 1))


def test_think_time_of_quick_moves_is_short(network: Network) -> None:
    clock = Clock(180, 2)
    usual = seconds(network, clock)
    assert 2 < usual < 15
    assert seconds(network, Clock(30, 2)) < usual / 2
    assert seconds(network, clock, chess.STARTING_FEN) < usual
    exchange = ("Nd4", "Nxd4")
    elsewhere = seconds(network, clock, MIDDLEGAME, *exchange, play="Bb7")
    assert seconds(network, clock, MIDDLEGAME, *exchange, play="exd4") < elsewhere / 2
    assert seconds(network, clock, "7k/8/8/8/8/8/1q6/K7 w - - 0 40") < usual / 4


def test_engine_waits_for_think_time_or_stop(network: Network) -> None:
    def took(*commands: str) -> float:
        out = io.StringIO()
        times: list[float] = []

        def lines() -> Iterator[str]:
            yield from ("setoption name Think Time value true", f"position fen {MIDDLEGAME}", "isready")
            while "readyok" not in out.getvalue():
                time.sleep(0.001)
            times.append(time.monotonic())
            yield from commands
            while "bestmove" not in out.getvalue():
                time.sleep(0.001)
            times.append(time.monotonic())

        Engine(lambda *_: network, Options(), out).run(lines())
        return times[1] - times[0]

    expected = seconds(network, Clock(20))
    assert took("go btime 20000 wtime 1000") >= expected > 0.3
    assert took("go btime 2000000", "stop") < expected
    assert took("go depth 5") < expected
    assert took("go ponder btime 20000", "ponderhit") >= expected


def test_move_with_clock_has_seconds(serve: Serve) -> None:
    client = serve(shipped_models())
    clock = {"remaining": 180, "increment": 2}
    answer = asked(client, "/v1/move", fen=MIDDLEGAME, clock=clock)
    assert 2 < answer["seconds"] < 15
    assert "seconds" not in asked(client, "/v1/move", fen=MIDDLEGAME)
    refused = client.post("/v1/move", json={"fen": MIDDLEGAME, "clock": {"remaining": -1}})
    assert refused.json()["errors"][0]["field"] == "clock.remaining"


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_think_time_does_not_depend_on_the_rule(serve: Serve, rule: dict[str, Any]) -> None:
    client = serve(shipped_models())
    request = {"fen": MIDDLEGAME, "clock": {"remaining": 180}}
    plain = asked(client, "/v1/move", **request)
    assert asked(client, "/v1/move", **request, **rule)["seconds"] == plain["seconds"]
