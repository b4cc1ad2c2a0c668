"""MCP tools, through the official client: answers, keys, limits, origins."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from movemask.network.files import shipped_models
from movemask.server.app import create_app
from movemask.server.settings import Settings
from tests.conftest import Serve
from tests.networks import write_fake
from tests.processes import call, environment, served, stopped, until
from tests.server.asking import refused
from tests.server.test_logs import TIME

SCHOLARS_MATE = "1. e4 e5 2. Qh5 Nc6 3. Bc4 Nf6 4. Qxf7# 1-0"
SENT = {"Content-Type": "application/json", "Accept": "application/json", "Host": "localhost"}
KEY = "a-key-of-thirty-two-characters-or-more"


async def told(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


def message(method: str, **params: Any) -> bytes:
    """A request of the protocol; NaN and the like as Python writes them."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def posted(url: str, method: str, **headers: str) -> httpx2.Response:
    return httpx2.post(url, content=message(method), headers=SENT | headers)


def called(tool: str, **arguments: Any) -> bytes:
    return message("tools/call", name=tool, arguments=arguments)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of an app on the fake with the tools, which the tests here share."""
    folder = tmp_path_factory.mktemp("tools")
    url = f"sqlite:///{folder}/audit.db"
    app = create_app(Settings.read(models_dir=write_fake(folder / "m").parent, database_url=url, runs=1, mcp=True))
    with TestClient(app, base_url="http://localhost") as client:
        client.post("/mcp", content=message("ping"), headers=SENT)  # what is made once is made now
        yield client


@pytest.mark.anyio
async def test_tools() -> None:
    parameters = StdioServerParameters(command=sys.executable, args=["-m", "movemask", "mcp"], env=environment())
    async with Client(stdio_client(parameters)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"policy", "sweep", "game", "audit"}
        for tool in tools.values():
            assert tool.output_schema is not None
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint
        policy = await told(client, "policy", moves=["e4", "e5"], rating=1500, top=3)
        assert (policy["side_to_move"], policy["rating"], policy["opponent_rating"]) == ("white", 1500, 1500)
        assert policy["moves"][0]["san"] == "Nf3"
        assert (len(policy["moves"]), policy["other_moves"]) == (3, 26)
        assert policy["win_percent"] + policy["draw_percent"] + policy["loss_percent"] == pytest.approx(100, abs=0.02)
        sweep = await told(client, "sweep", ratings=[1000, 2000], top=20)
        assert [item["rating"] for item in sweep["ratings"]] == [1000, 2000]
        assert all(
            sum(move["percent"] for move in item["moves"]) == pytest.approx(100, abs=0.1) for item in sweep["ratings"]
        )
        (game,) = (await told(client, "game", pgn=SCHOLARS_MATE, top=1))["games"]
        assert [item["move"] for item in game["surprising"]] == ["2.Qh5"]
        assert (game["result"], game["white_moves"]["moves"], game["black_moves"]["moves"]) == ("1-0", 4, 3)
        line = '[White "Ann"] [Black "Bob"] 1. e4 e5 2. Nf3 Nc6 *'
        (game,) = (await told(client, "game", pgn=line, top=1))["games"]
        assert (game["white"], game["black"], game["white_moves"]["moves"]) == ("Ann", "Bob", 2)
        audit = await told(client, "audit", policy={"e2e4": 0.75, "e1g1": 0.25})
        assert audit["illegal_percent"] == 25
        assert [(item["uci"], item["percent"]) for item in audit["illegal"]] == [("e1g1", 25)]
        # As clients really send arguments: numbers and lists as text, and null for what is left out.
        assert await told(client, "policy", moves="e4 e5", rating="1500", top="3", fen=None, model=None) == policy
        assert await told(client, "policy", moves='["e4", "e5"]', rating=1500, opponent_rating=None, top=3) == policy
        assert await told(client, "sweep", ratings="1000,2000", top=20) == sweep
        assert await told(client, "audit", policy='{"e2e4": 0.75, "e1g1": 0.25}') == audit
        assert await told(client, "audit", policy={"e2e4": "0.75", "e1g1": 0.25}, fen="", moves="") == audit
        # Cursor sends "" for what is not set, others "null".
        blank = {"fen": "", "opponent_rating": "", "model": ""}
        assert await told(client, "policy", moves="e4 e5", rating="1500", top="3", **blank) == policy
        unset = {"fen": "", "moves": "null", "rating": "null", "opponent_rating": "", "model": "", "top": ""}
        assert await told(client, "policy", **unset) == await told(client, "policy")
        assert await told(client, "sweep", ratings="", top="") == await told(client, "sweep", ratings="null")
        wrong = await client.call_tool("policy", {"fen": "nonsense"})
        assert wrong.is_error
        assert "'nonsense' is not a FEN" in wrong.content[0].text  # type: ignore[union-attr]
        for name, arguments, words in (
            ("policy", {"elo": 2400}, "policy has no argument elo; available: fen, moves, rating, opponent_rating"),
            ("policy", {"rating": True}, "rating"),
            ("policy", {"rating": "much"}, "rating"),
            ("policy", {"rating": 99_999}, "rating: Input should be less than or equal to 5000"),
            ("sweep", {"ratings": [float("nan")]}, "ratings"),
        ):
            wrong = await client.call_tool(name, arguments)
            assert wrong.is_error
            assert words in wrong.content[0].text  # type: ignore[union-attr]


@pytest.mark.anyio
async def test_tools_need_keys_and_keep_limits(tmp_path: Path) -> None:
    for file in shipped_models().iterdir():
        (tmp_path / file.name).symlink_to(file)
    options = ("--mcp", "--api-keys", KEY, "--client-rate", "0.01", "--client-burst", "30")
    with served(tmp_path, *options) as (_, port):
        url = f"http://127.0.0.1:{port}/mcp"
        assert httpx2.post(url, json={}).status_code == 401
        assert httpx2.get(url, headers={"Authorization": f"Bearer {KEY}"}).status_code == 405
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"})
        async with http, Client(streamable_http_client(url, http_client=http)) as client:
            assert len((await told(client, "sweep"))["ratings"]) == 18
            limited = await client.call_tool("sweep", {})
            assert limited.is_error
            assert "rate limit exceeded: 18 positions" in limited.content[0].text  # type: ignore[union-attr]
        for _ in range(30):  # what asks for no position counts too
            response = posted(f"http://127.0.0.1:{port}/mcp", "ping", Authorization=f"Bearer {KEY}")
        refused(response, 429, "rate-limited")
        counted = 'movemask_leakage_count{kind="raw"'
        key = f"Bearer {KEY}"
        until(lambda: counted in call(port, "/metrics", authorization=key), "the tools' positions are in the audit")


@pytest.mark.parametrize(
    "body",
    [
        called("sweep", ratings=[[]] * 16_000),
        called("policy", moves=[0] * 20_000),
        called("audit", policy={f"{number:08}": "x" for number in range(3_500)}),
        called("x" * 65_000),
        message("initialize", clientInfo={"icons": [0] * 20_000}),
        b"[" * 65_000,
        b"[" * 4_000,
        b'"' + b'\\"' * 32_000,
        called("policy", moves=[0] * 600_000),
    ],
)
def test_invalid_messages_use_little_memory(tools: TestClient, body: bytes) -> None:
    tracemalloc.start()
    try:
        response = tools.post("/mcp", content=body, headers=SENT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert response.status_code in (400, 413) or "error" in response.json() or response.json()["result"]["isError"]
    assert len(response.content) < 2_000
    assert peak < 3 << 20


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/json, text/event-stream"])
def test_accept_headers(tools: TestClient, accept: str) -> None:
    response = tools.post("/mcp", content=INITIALIZE, headers={**SENT, "Accept": accept})
    assert response.json()["result"]["serverInfo"]["name"] == "movemask"


@pytest.mark.parametrize(
    ("settings", "host", "origin", "status"),
    [
        ({}, "localhost:8000", None, 200),
        ({}, "127.0.0.1:8000", "http://127.0.0.1:8000", 200),
        ({}, "[::1]:8000", None, 200),
        ({}, "localhost:8000", "http://evil.example", 403),
        ({}, "localhost:8000", "http://localhost:9000", 200),
        ({}, "localhost:8000", "null", 403),
        ({}, "evil.example:8000", "http://evil.example:8000", 400),  # a name that was pointed at 127.0.0.1
        ({}, "127.0.0.1.evil.example", None, 400),
        ({}, "", None, 400),
        ({"cors_origins": "https://tools.example"}, "localhost", "https://tools.example", 200),
        ({"cors_origins": "https://tools.example"}, "localhost", "https://evil.example", 403),
        ({"cors_origins": "*"}, "localhost", "https://any.example", 200),
        ({"trusted_hosts": "chess.example"}, "chess.example", "http://chess.example", 200),
        ({"trusted_hosts": "chess.example"}, "evil.example", "http://evil.example", 400),
        ({"proxies": 1}, "chess.example", None, 200),
        ({"host": "0.0.0.0"}, "chess.example", None, 200),
        ({"api_keys": KEY}, "chess.example", "http://chess.example", 200),
    ],
)
def test_hosts_and_origins(
    tools: TestClient, serve: Serve, settings: dict[str, Any], host: str, origin: str | None, status: int
) -> None:
    headers = {**SENT, "Host": host, "Authorization": f"Bearer {KEY}"} | ({"Origin": origin} if origin else {})
    client = serve(mcp=True, **settings) if settings else tools
    response = client.post("/mcp", content=message("ping"), headers=headers)
    if status == 400:
        refused(response, 400, "untrusted-host", "MOVEMASK_TRUSTED_HOSTS")
    elif status == 403:
        refused(response, 403, "cross-site", "MOVEMASK_CORS_ORIGINS")
    else:
        assert response.status_code == status


def test_long_answers_are_shortened(tools: TestClient) -> None:
    """A host gives its model 25,000 tokens, some 100,000 characters."""
    body = called("game", pgn=(SCHOLARS_MATE + "\n\n") * 60)
    result = tools.post("/mcp", content=body, headers=SENT).json()["result"]
    count = len(result["structuredContent"]["games"])
    assert count > 10
    assert result["structuredContent"]["games_left_out"] == 60 - count
    (text,) = (part["text"] for part in result["content"])
    assert f"{60 - count} more games are left out" in text
    assert not text.startswith("{")  # the structured answer has the JSON
    assert len(text) + len(json.dumps(result["structuredContent"])) < 100_000


INITIALIZE = message(
    "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "x", "version": "1"}
)


def piped(*lines: bytes) -> list[Any]:
    """What `movemask mcp` writes if these lines are all of its standard input."""
    done = subprocess.run(
        [sys.executable, "-m", "movemask", "mcp"],
        input=b"".join(line + b"\n" for line in lines),
        env=environment(),
        capture_output=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_stdio_answers_before_end_of_input() -> None:
    note = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    request = called("policy").replace(b'"id": 1', b'"id": 2')
    responses = {response["id"]: response for response in piped(b"\xef\xbb\xbf" + INITIALIZE, note, request)}
    assert responses[1]["result"]["serverInfo"]["name"] == "movemask"
    assert responses[2]["result"]["structuredContent"]["moves"]


def test_stdio_parse_errors() -> None:
    lines = [b'{"jsonrpc": "2.0", "id": 3, "method": "ping",}', b"word", b"[]", b'{"a": "\\ud83d"}']
    errors = [response for response in piped(INITIALIZE, *lines) if "error" in response]
    assert [(error["id"], error["error"]["code"]) for error in errors] == [(None, -32700)] * len(lines)


def test_arguments_as_text_are_invalid(tools: TestClient) -> None:
    body = message("tools/call", name="policy", arguments=json.dumps({"fen": "startpos"}))
    error = tools.post("/mcp", content=body, headers=SENT).json()["error"]
    assert (error["code"], error["message"]) == (-32602, "arguments: must be an object, not a text that holds one")


def test_largest_arguments(tools: TestClient) -> None:
    client = tools
    long = "1. e4 " + "{[%clk 0:03:00], [[}" * 2_500 + " *" + "\n\n1. e5 *" * 500
    response = client.post("/mcp", content=called("game", pgn=long), headers=SENT).json()["result"]
    assert len(response["structuredContent"]["games"]) == 1
    assert response["structuredContent"]["errors"][-1] == "and 490 more"
    policy = {f"a1{number:06}": -0.1234567890123456e-300 for number in range(1_500)}
    response = client.post("/mcp", content=called("audit", policy=policy), headers=SENT).json()["result"]
    assert response["content"][0]["text"].startswith("policy")


@pytest.mark.deep
def test_client_cannot_forge_log_lines(models: Path) -> None:
    forged = "x\n2026-10-17T12:00:00.000Z INFO    access: GET /forged 200" + "\r" * 100_000
    with served(models, "--mcp", "--log-level", "debug") as (process, port):
        for body in (
            message("prompts/get", name=forged),
            message("resources/read", uri=forged),
            message("completion/complete", ref={"type": "ref/prompt", "name": forged}, argument={"name": forged}),
            message(forged),
            called(forged),
            called("policy", fen=forged),
            called("policy", **{forged: 1}),
        ):
            httpx2.post(f"http://127.0.0.1:{port}/mcp", content=body, headers=SENT)
        assert stopped(process) == 0
    log = (models / "log.txt").read_text()
    assert all(re.match(rf"{TIME} [A-Z]+ +[\w.]+: ", line) for line in log.split("\n")[:-1])
    assert "/forged 200" not in log
    assert len(log) < 20_000


@pytest.mark.parametrize(
    ("body", "status", "name"),
    [
        (called("policy", moves=["e4"] * 20_000), 413, "body-too-large"),
        (b"[[]," + b"[]," * 5_000 + b"[]]", 413, "body-too-large"),
        (b"", 415, "unsupported-media-type"),
    ],
    ids=["bytes", "pieces", "no body"],
)
def test_mcp_refuses_bodies_as_other_routes(tools: TestClient, body: bytes, status: int, name: str) -> None:
    """Sixty bodies of nested lists took 424 MB."""
    headers = SENT if body else {**SENT, "Content-Type": "text/plain"}
    refused(tools.post("/mcp", content=body, headers=headers), status, name)
