"""What a lichess user would lose: the example that offers movemask as an engine of the analysis board."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import chess
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.conftest import ROOT
from tests.processes import environment, until

PROVIDER = ROOT / "examples" / "lichess-engine" / "provider.py"


class Lichess:
    """The routes of lichess's external engine protocol, with one position to analyse."""

    def __init__(self) -> None:
        self.registered: dict[str, Any] = {}
        self.lines = ""
        self.done = threading.Event()

    async def engines(self, request: Request) -> Response:
        if request.method == "POST":
            self.registered = await request.json() | {"token": request.headers["authorization"]}
        return JSONResponse([])

    async def work(self, request: Request) -> Response:
        if self.done.is_set() or (await request.json())["providerSecret"] != self.registered["providerSecret"]:
            return Response(status_code=204)
        work = {"multiPv": 2, "initialFen": chess.STARTING_FEN, "moves": ["e2e4"], "movetime": 1000}
        return JSONResponse({"id": "job-1", "work": work})

    async def analysed(self, request: Request) -> Response:
        self.lines = (await request.body()).decode()
        self.done.set()
        return Response()

    @contextmanager
    def listening(self) -> Iterator[str]:
        """Its address."""
        routes = [
            Route("/api/external-engine", self.engines, methods=["GET", "POST"]),
            Route("/api/external-engine/work", self.work, methods=["POST"]),
            Route("/api/external-engine/work/job-1", self.analysed, methods=["POST"]),
        ]
        server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), port=0, log_config=None))
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            until(lambda: server.started, "lichess listens")
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def test_the_provider_does_the_work_that_lichess_hands_out() -> None:
    lichess = Lichess()
    with lichess.listening() as address:
        command = [sys.executable, str(PROVIDER), "--lichess", address, "--broker", address]
        command += [sys.executable, "-m", "movemask", "uci"]
        with subprocess.Popen(command, env=environment(LICHESS_TOKEN="lip_test")) as provider:
            try:
                assert lichess.done.wait(60)
            finally:
                provider.terminate()
    assert lichess.registered["token"] == "Bearer lip_test"
    assert lichess.registered["variants"] == ["chess"]
    first, second = lichess.lines.splitlines()
    assert first.startswith("info depth 1 seldepth 2 multipv 1 score cp ")
    assert " multipv 2 score cp " in second
