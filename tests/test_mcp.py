"""What users of language models would lose: movemask's tools, by the official client of the Model Context Protocol."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from movemask.settings import shipped_models
from tests.processes import call, environment, served, until

SCHOLARS_MATE = "1. e4 e5 2. Qh5 Nc6 3. Bc4 Nf6 4. Qxf7# 1-0"
KEY = "a-key-of-thirty-two-characters-or-more"


async def told(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


@pytest.mark.anyio
async def test_four_tools_answer_in_a_players_words() -> None:
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
        assert [one["rating"] for one in sweep["ratings"]] == [1000, 2000]
        assert all(
            sum(move["percent"] for move in one["moves"]) == pytest.approx(100, abs=0.1) for one in sweep["ratings"]
        )
        (game,) = (await told(client, "game", pgn=SCHOLARS_MATE, top=1))["games"]
        assert [one["move"] for one in game["surprising"]] == ["2.Qh5"]
        assert (game["result"], game["white_moves"]["moves"], game["black_moves"]["moves"]) == ("1-0", 4, 3)
        audit = await told(client, "audit", policy={"e2e4": 0.75, "e1g1": 0.25})
        assert audit["illegal_percent"] == 25
        assert [(one["uci"], one["percent"]) for one in audit["illegal"]] == [("e1g1", 25)]
        wrong = await client.call_tool("policy", {"fen": "nonsense"})
        assert wrong.is_error
        assert "'nonsense' is cut short" in wrong.content[0].text  # type: ignore[union-attr]
        for name, arguments, words in (
            ("policy", {"elo": 2400}, "policy has no argument elo; there are fen, moves, rating, opponent_rating"),
            ("policy", {"rating": True}, "rating"),
            ("policy", {"rating": "1500"}, "rating"),
            ("sweep", {"ratings": [float("nan")]}, "ratings"),
        ):
            wrong = await client.call_tool(name, arguments)
            assert wrong.is_error
            assert words in wrong.content[0].text  # type: ignore[union-attr]


@pytest.mark.anyio
async def test_a_services_tools_want_its_keys_and_keep_its_limits(tmp_path: Path) -> None:
    for file in shipped_models().iterdir():
        (tmp_path / file.name).symlink_to(file)
    options = ("--mcp", "true", "--api-keys", KEY, "--client-rate", "1", "--client-burst", "20")
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
        audited = lambda: call(port, "/v1/leakage", authorization=f"Bearer {KEY}")["models"]  # noqa: E731
        until(audited, "the tools' positions are in the audit")
