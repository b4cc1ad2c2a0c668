"""Client and AsyncClient: typed answers, retries, problems."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import chess
import httpx2
import pytest
from fastapi.testclient import TestClient

import movemask
from movemask import schemas
from movemask.schemas import ErrorOut, PolicyOut
from tests.client.hostile import Connection, answer, misbehaving
from tests.client.through import through
from tests.conftest import Serve
from tests.networks import write_fake
from tests.processes import environment
from tests.server.ledger.records import written

pytestmark = pytest.mark.anyio


PGN = '[WhiteElo "1400"]\n[BlackElo "1500"]\n\n1. e4 e5 2. Nf3 *\n'


@pytest.fixture
def http(serve: Serve, tmp_path: Path) -> TestClient:
    write_fake(tmp_path / "m", elo=True)
    return serve(tmp_path / "m", max_positions=100)


@pytest.fixture
def client(http: TestClient) -> movemask.Client:
    return movemask.Client(http=through(http))


def test_methods_return_typed_answers(client: movemask.Client, http: TestClient) -> None:
    board = chess.Board()
    board.push_san("e4")
    policy = client.policy(board, elo=(1500, 1600), include=["san"], top_k=3)
    assert (policy.turn, len(policy.moves), policy.notation) == ("black", 3, "uci")
    assert policy.elo is not None
    assert (policy.elo.own, policy.elo.opponent) == (1500, 1600)
    assert client.policy(moves=["e4"], elo=1500).fen == policy.fen
    assert client.policy(board.fen(en_passant="fen")).fen == policy.fen
    assert client.move(board, method="sample", seed=5).move == client.move(board, method="sample", seed=5).move
    swept = client.sweep("startpos", ratings=[1100, 1900]).points
    assert [point.elo.own for point in swept if point.elo] == [1100, 1900]
    (game,) = client.games(PGN).games
    assert not isinstance(game, ErrorOut)
    assert [move.san for move in game.moves] == ["e4", "e5", "Nf3"]
    assert client.audit("startpos", policy={"e2e4": 0.5, "e2e5": 0.5}).illegal[0].uci == "e2e5"
    written(http.app.state.services.recorder)  # type: ignore[attr-defined]
    assert client.leakage().models["fake"].positions > 0
    assert client.leakage(by="phase").models["fake"].by
    assert len(client.leakage_worst(limit="2").positions) == 2
    positions = list(client.leakage_positions())
    assert positions[0].kinds["raw"].leaked is not None
    assert [model.name for model in client.models().models] == ["fake"]
    assert client.vocabulary("fake").moves == list(movemask.vocabulary("movemask-1880"))


async def test_async_client_has_same_answers(client: movemask.Client, http: TestClient) -> None:
    transport = httpx2.ASGITransport(app=http.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as inner:
        other = movemask.AsyncClient(http=inner)
        result = await other.policy(moves=["e4"], elo=1500)
        assert result.moves == client.policy(moves=["e4"], elo=1500).moves
        assert await other.annotate(PGN) == client.annotate(PGN)
        written(http.app.state.services.recorder)  # type: ignore[attr-defined]
        assert len([item async for item in other.leakage_positions()]) > 2
        assert len([item async for item in other.policies(["startpos"] * 20)]) == 20
        with pytest.raises(movemask.ApiError, match=r"moves\[0\]: 'e5' is not legal"):
            await other.policy(moves=["e5"])


def test_returned_types_are_public() -> None:
    methods = [result for name, result in vars(movemask.AsyncClient).items() if not name.startswith("_")]
    returned = " ".join(str(get_type_hints(method)["return"]) for method in methods)
    named = set(re.findall(r"movemask\.schemas\.\w+\.(\w+)", returned))
    assert named
    assert named - set(schemas.__all__) == set()


def test_clients_have_same_methods_and_help() -> None:
    def methods(client: type) -> dict[str, str | None]:
        names = [name for name in dir(client) if not name.startswith("_")]
        return {name.removeprefix("a") if name == "aclose" else name: getattr(client, name).__doc__ for name in names}

    assert methods(movemask.Client) == methods(movemask.AsyncClient)


async def test_abandoned_answers_are_cancelled_inside_event_loop(client: movemask.Client) -> None:
    assert isinstance(next(client.policies(["startpos"] * 20)), PolicyOut)
    assert client.policy("startpos").moves


LOST: Any = {"policy": {}, "move": {}, "sweep": {"ratings": [1500]}, "audit": {"policy": {"e2e4": 1.0}}}


@pytest.mark.parametrize("method", LOST)
def test_none_position_is_not_startpos(client: movemask.Client, method: str) -> None:
    ask = partial(getattr(client, method), **LOST[method])
    for lost in (partial(ask, fen=None), partial(ask, None), partial(ask, None, moves=["e4"])):
        with pytest.raises(movemask.ApiError, match=r"^fen: is null, which names no position"):
            lost()
    with pytest.raises(movemask.ApiError, match=r"^fen: is missing, as are moves"):
        ask()
    wrongs: list[Any] = [[], {}, 3, chess.Move.null()]
    for wrong in wrongs:
        with pytest.raises(movemask.MovemaskError, match=r"^position: .* is neither a chess\.Board nor a FEN"):
            ask(wrong)
    assert ask(moves=["e4"]).turn == ask(fen="startpos", moves=["e4"]).turn == "black"
    result = list(client.policies(["startpos", None, "startpos"]))  # type: ignore[list-item]
    assert [isinstance(item, ErrorOut) for item in result] == [False, True, False]


def test_long_batch_is_split_and_bad_items_are_errors(client: movemask.Client) -> None:
    positions: list[chess.Board | str] = [chess.Board(), "startpos", "no fen"] * 111  # it takes 100 at once
    result = list(client.policies(positions, elo=1500))
    assert len(result) == 333
    assert all(isinstance(item, ErrorOut) == (place % 3 == 2) for place, item in enumerate(result))
    assert isinstance(result[0], PolicyOut)
    assert isinstance(result[1], PolicyOut)
    assert result[0].moves == result[1].moves


def test_problem_raises_with_fields(client: movemask.Client) -> None:
    with pytest.raises(movemask.ApiError) as caught:
        client.policy("8/8/8/8/8/8/8/8 w - - 0 1")
    error = caught.value
    assert (error.status, error.name, error.title) == (422, "invalid-position", "Invalid position")
    assert "NO_WHITE_KING" in error.extra["statuses"]
    assert error.request_id
    assert error.detail == str(error)
    with pytest.raises(movemask.ApiError, match="no model 'x'") as caught:
        list(client.policies(["startpos"], model="x"))
    assert caught.value.status == 404


def test_non_finite_numbers_reach_service(client: movemask.Client) -> None:
    with pytest.raises(movemask.ApiError, match=r"elo\.self: .* got nan"):
        client.policy("startpos", elo=math.nan)
    with pytest.raises(movemask.ApiError, match=r"temperature: .* got inf"):
        client.policy("startpos", temperature=math.inf)
    logits = [0.0] * 1858
    logits[0] = math.nan  # of an illegal move: that leakage cannot be measured
    assert client.audit("startpos", vocabulary="lc0-1858", logits=logits).kinds["raw"].leaked is None


def answering(
    *answers: httpx2.Response | type[httpx2.TransportError],
) -> tuple[httpx2.AsyncClient, list[httpx2.Request]]:
    """A transport that gives these answers in turn, and the requests that it got."""
    requests: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        result = answers[min(len(requests), len(answers)) - 1]
        if isinstance(result, httpx2.Response):
            return result
        raise result("refused", request=request)

    return httpx2.AsyncClient(transport=httpx2.MockTransport(respond), base_url="http://x"), requests


BUSY = {"type": "urn:movemask:problem:overloaded", "title": "Overloaded", "status": 503, "detail": "the queue is full"}
MODELS: dict[str, list[Any]] = {"models": []}


def test_busy_service_is_retried_with_retry_after() -> None:
    busy = httpx2.Response(503, json=BUSY, headers={"Retry-After": "0"})
    limited = httpx2.Response(429, json={**BUSY, "status": 429}, headers={"Retry-After": "0"})
    http, requests = answering(busy, limited, httpx2.Response(200, json={**MODELS, "of a newer service": 1}))
    assert movemask.Client(http=http).models().models == []
    assert len(requests) == 3
    http, requests = answering(busy)
    with pytest.raises(movemask.ApiError, match="the queue is full"):
        movemask.Client(http=http, retries=2).models()
    assert len(requests) == 3
    http, requests = answering(httpx2.Response(503, json=BUSY))  # no Retry-After: waiting does not help
    with pytest.raises(movemask.ApiError):
        movemask.Client(http=http).models()
    assert len(requests) == 1


def test_overloaded_positions_are_retried_in_order(http: TestClient) -> None:
    """Beside a full queue, 236 of 600 positions came back as errors, whatever `retries` was."""
    sent: list[list[str]] = []

    class Busy(httpx2.AsyncBaseTransport):
        """Has no room for what comes after the second position of a request."""

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            positions = json.loads(await request.aread())["positions"]
            sent.append([position["fen"] for position in positions])
            responses = client_of_all.policies(sent[-1])
            lines = [item.model_dump_json(by_alias=True) async for item in responses][: 2 if retries else None]
            full = json.dumps({"error": BUSY | {"retry_after": 0}})
            lines += [full] * (len(positions) - len(lines))
            return httpx2.Response(200, headers={"Content-Type": "application/x-ndjson"}, text="\n".join(lines))

    client_of_all = movemask.AsyncClient(http=through(http))
    board = chess.Board()
    fens = [board.fen() for move in ("e4", "e5", "Nf3", "Nc6", "Bc4") for _ in [board.push_san(move)]]
    for retries in (1, 0):
        sent.clear()
        busy = httpx2.AsyncClient(transport=Busy(), base_url="http://x")
        result = list(movemask.Client(http=busy, retries=retries).policies(fens))
        assert [item.fen for item in result if isinstance(item, PolicyOut)] == [
            movemask.Client(http=through(http)).policy(fen).fen for fen in fens
        ]
        assert [len(item) for item in sent] == ([5, 3, 1] if retries else [5])
    full = json.dumps({"error": BUSY | {"retry_after": 0}}) + "\n"
    stream, requests = answering(httpx2.Response(200, headers={"Content-Type": "application/x-ndjson"}, text=full))
    (error,) = movemask.Client(http=stream, retries=2).policies(["startpos"])
    assert isinstance(error, ErrorOut)
    assert len(requests) == 3


def test_unread_batch_uses_no_retry() -> None:
    """Of three clients with one key, one gave up after four checks that each asked for one position of its 300."""
    limited = {"type": "urn:movemask:problem:rate-limited", "title": "Rate limited", "status": 429, "detail": "rate"}
    unread, read = (
        httpx2.Response(429, json=limited | {"positions": positions}, headers={"Retry-After": "0"})
        for positions in (1, 2)
    )
    http, requests = answering(*[unread] * 5, read, *[unread] * 5, read, unread, read)
    with pytest.raises(movemask.ApiError, match="rate"):
        list(movemask.Client(http=http, retries=2).policies(["startpos"] * 2))
    assert len(requests) == 14
    http, requests = answering(unread)
    with pytest.raises(movemask.ApiError, match="rate"):
        list(movemask.Client(http=http, retries=0).policies(["startpos"] * 2))
    assert len(requests) == 1


def test_leakage_positions_limit_and_cursor(client: movemask.Client, http: TestClient) -> None:
    """`limit` was overwritten, so that a program that asked for three got millions; so was `cursor`."""
    assert len(list(client.policies(["startpos"] * 5))) == 5
    written(http.app.state.services.recorder)  # type: ignore[attr-defined]
    every = [item.time for item in client.leakage_positions()]
    assert len(every) == 5
    assert [item.time for item in client.leakage_positions(limit=3)] == every[:3]
    first = http.get("/v1/leakage/positions?limit=2").json()
    assert [item.time for item in client.leakage_positions(cursor=first["next"])] == every[2:]
    assert len(list(client.leakage_positions(limit=2000))) == 5
    with pytest.raises(movemask.MovemaskError, match="limit: 0 is not a whole number of at least 1"):
        list(client.leakage_positions(limit=0))


def test_unreachable_service_is_named() -> None:
    http, _ = answering(httpx2.ConnectError)
    with pytest.raises(
        movemask.ServiceUnreachable, match="http://x/v1/models: ConnectError: refused; is the service running"
    ):
        movemask.Client(http=http).models()
    http, _ = answering(httpx2.Response(404, text="no such page"))
    http.base_url = "http://x/v1"
    with pytest.raises(movemask.ApiError, match=r"http://x/v1/v1/models: .*; the client adds /v1 itself"):
        movemask.Client(http=http).models()
    http, _ = answering(httpx2.Response(502, text="<html>bad gateway</html>"))
    with pytest.raises(movemask.ApiError, match="answered 502 without a problem document"):
        movemask.Client(http=http).models()


@pytest.mark.parametrize("more", [{"key": "secret"}, {"url": "http://elsewhere:8000"}])
def test_given_http_takes_no_url_and_no_key(more: dict[str, Any]) -> None:
    """Both were ignored without a word."""
    http, _ = answering(httpx2.Response(200, json=MODELS))
    with pytest.raises(movemask.MovemaskError, match="give neither url nor key with it") as caught:
        movemask.Client(http=http, **more)
    assert "secret" not in str(caught.value)


def test_key_and_user_agent_are_sent() -> None:
    heads: list[bytes] = []

    def behave(connection: Connection) -> None:
        heads.append(connection.request)
        answer(b'{"models": []}')(connection)

    with misbehaving(behave) as url, movemask.Client(url, key="secret") as client:
        client.models()
    assert b"Authorization: Bearer secret\r\n" in heads[0]
    assert f"User-Agent: movemask/{movemask.__version__}\r\n".encode() in heads[0]


#: What a service needs, and a program that asks one does not.
SERVERS = {
    *("fastapi", "starlette", "uvicorn", "prometheus_client", "onnxruntime", "numpy", "orjson"),
    *("sqlalchemy", "psycopg", "pydantic_settings", "click"),
}

USE = """
import asyncio, sys, movemask
async def both():
    async with movemask.AsyncClient(sys.argv[1]) as client:
        await client.models()
        async for _ in client.policies([]): pass
with movemask.Client(sys.argv[1]) as client:
    client.models()
    try: client.policy("startpos", elo=[1500, 1600])
    except movemask.InvalidResponse: pass
asyncio.run(both())
print(*{name.partition(".")[0] for name in sys.modules})
"""


def test_client_imports_no_server_packages() -> None:
    with misbehaving(answer(b'{"models": []}')) as url:
        command = [sys.executable, "-c", USE, url]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert SERVERS & set(done.stdout.split()) == set()
