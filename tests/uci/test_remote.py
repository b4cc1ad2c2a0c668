"""What a user of a service elsewhere would lose: the same engine, and one that survives the service's end."""

from __future__ import annotations

import io
import random

import chess
import httpx2
from fastapi.testclient import TestClient

from movemask.cli.uci import RemoteSource
from movemask.client.http import Client
from movemask.client.local import load
from movemask.uci.engine import Engine, Go
from movemask.uci.options import Options
from movemask.uci.search import Source, search


def test_a_service_and_a_network_here_play_the_same(shipped: TestClient) -> None:
    sources: tuple[Source, Source] = load(), RemoteSource(Client(http=shipped), None)
    options = Options(multi_pv=4, show_wdl=True, self_elo=1300, opponent_elo=1700, ponder=True)
    board = chess.Board()
    for uci in ("e2e4", "c7c5", "g1f3"):
        board.push_uci(uci)
        found = [search(board, Go(), options, source, random.Random(1))[0] for source in sources]
        lines = [[line.split(" nodes ")[0] + line.partition(" pv ")[2] for line in one] for one in found]
        assert lines[0] == lines[1]


def test_a_service_that_is_gone_is_told_and_the_gui_is_answered() -> None:
    def gone(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    http = httpx2.Client(transport=httpx2.MockTransport(gone), base_url="http://nowhere")
    out = io.StringIO()
    engine = Engine(lambda name: RemoteSource(Client(http=http, retries=0), name), Options(), out)
    engine.run(["isready", "position startpos", "go", "quit"])
    assert "info string http://nowhere/v1/policy/batch: ConnectError: refused" in out.getvalue()
    assert out.getvalue().endswith("bestmove (none)\n")
