"""`movemask uci --url` and `movemask mcp --url` beside a broken service."""

from __future__ import annotations

import io
import json
import math
import re
from typing import Any

import chess
import pytest
from mcp import Client

import movemask
from movemask.cli.uci import RemoteSource
from movemask.mcp import mcp_server
from movemask.uci.engine import Engine
from movemask.uci.options import Options
from tests.client.hostile import FAULTS, LATE, Behaviour, answer, misbehaving
from tests.processes import run

#: Answers that are not the service's; `tests.client` has all faults.
KINDS = ("a page", "other fields")


@pytest.mark.anyio
@pytest.mark.parametrize("fault", ["silence", "closed at once", *KINDS])
async def test_mcp_tool_names_fault_of_service(fault: str) -> None:
    behaviour, words = FAULTS[fault]
    with misbehaving(behaviour) as url:
        server = mcp_server(lambda _: movemask.AsyncClient(url, timeout=0.3 if words == LATE else 60))
        async with Client(server) as client:
            result = await client.call_tool("policy", {"fen": "startpos"})
    assert result.is_error
    if "models: " in words or "models.0" in words:  # what is missing in a policy has another name
        words = "the answer is not movemask's: "
    assert words in result.content[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("fault", KINDS)
def test_engine_ends_with_fault_of_service(fault: str) -> None:
    behaviour, words = FAULTS[fault]
    with misbehaving(behaviour) as url:
        result = run("uci", "--url", url, input="uci\nquit\n")
    assert result.exit_code == 1
    assert re.search(rf"^Error: .*{re.escape(words)}.*\n\Z", result.output)


def models(**entry: Any) -> Behaviour:
    """A list of one model, which is like this."""
    listed = json.dumps({"models": [{"name": "x", "default": True, "served": True} | entry]})
    return answer(listed.replace("Infinity", "1e999").encode())


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (models(served=False), "serves no model"),
        (models(name="x\nbestmove e2e4"), r"'x\\nbestmove e2e4' is not a valid name of a model"),
        (models(contract={"elo": {"minimum": math.inf, "maximum": 1}}), "an impossible contract"),
    ],
)
def test_models_that_service_lacks_raise(behaviour: Behaviour, words: str) -> None:
    with misbehaving(behaviour) as url:
        result = run("uci", "--url", url, input="uci\nquit\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.search(words, result.output)


def test_illegal_move_of_service_is_not_played() -> None:
    moves = [{"uci": "e2e5", "probability": 1.0}]
    policy = {
        **{"model": {"name": "x", "digest": "y"}, "fen": "f", "turn": "white", "status": "ongoing"},
        **{"moves": moves, "ignored": []},
    }
    line = answer(json.dumps(policy).encode() + b"\n", kind="application/x-ndjson")
    out = io.StringIO()
    with misbehaving(line) as url, movemask.Client(url) as client:
        source = RemoteSource(client, None)
        with pytest.raises(movemask.InvalidResponse, match=r"a move that is not legal: .*e2e5"):
            source.policies([chess.Board()], elo=None)
        Engine(lambda name, threads: source, Options(), out).run(["position startpos", "go", "quit"])
    assert "info string the service answered with a move that is not legal" in out.getvalue()
    assert out.getvalue().endswith("bestmove (none)\n")
