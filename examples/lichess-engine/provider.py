"""Offers movemask as an engine of the lichess analysis board, by lichess's external engine protocol.

Source: https://lichess.org/api#tag/external-engine. Lichess asks for work, this answers with lines of UCI:

    pip install 'movemask[client]'
    LICHESS_TOKEN=lip_… python provider.py --name "movemask 1500" movemask uci --elo 1500

The token needs the scopes `engine:read` and `engine:write`. Then choose the engine in the board's engine settings.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx2

ENGINES = "/api/external-engine"
RETRY = 5.0  # seconds after an error of the connection


def register(lichess: httpx2.Client, name: str, secret: str) -> None:
    """Makes lichess know the engine, or changes the one of this name."""
    registration = {"name": name, "maxThreads": 1, "maxHash": 16, "variants": ["chess"], "providerSecret": secret}
    known = {engine["name"]: engine["id"] for engine in lichess.get(ENGINES).raise_for_status().json()}
    method, path = ("PUT", f"{ENGINES}/{known[name]}") if name in known else ("POST", ENGINES)
    lichess.request(method, path, json=registration).raise_for_status()


class Engine:
    """A UCI engine in a process of its own."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self._send("uci")
        next(line for line in self._lines() if line == "uciok")
        self._send("setoption name UCI_AnalyseMode value true")  # no move is drawn at random

    def analysis(self, work: dict[str, Any]) -> Iterator[str]:
        """The lines on a position, each as soon as it is there."""
        moves = f" moves {' '.join(work['moves'])}" if work["moves"] else ""
        self._send(f"setoption name MultiPV value {work['multiPv']}")
        self._send(f"position fen {work['initialFen']}{moves}")
        self._send("go")  # one run of the network, whatever depth or time the board asks for
        for line in self._lines():
            if line.startswith("info") and " score " in line:
                yield line + "\n"
            if line.startswith("bestmove"):
                return

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")

    def _lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield line.strip()
        raise SystemExit("the engine has ended")


def work(engine: Engine, broker: httpx2.Client, secret: str) -> None:
    """Asks for work, which the broker answers after some seconds, and does it if there is some."""
    answer = broker.post(f"{ENGINES}/work", json={"providerSecret": secret}).raise_for_status()
    if answer.status_code == httpx2.codes.OK:
        job = answer.json()
        lines = (line.encode() for line in engine.analysis(job["work"]))
        broker.post(f"{ENGINES}/work/{job['id']}", content=lines).raise_for_status()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="an engine for lichess's analysis board")
    parser.add_argument("--name", default="movemask")
    parser.add_argument("--lichess", default="https://lichess.org")
    parser.add_argument("--broker", default="https://engine.lichess.ovh")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the engine's, such as movemask uci --elo 1500")
    arguments = parser.parse_args()
    token, secret = os.environ["LICHESS_TOKEN"], secrets.token_urlsafe(32)
    headers = {"Authorization": f"Bearer {token}"}
    register(httpx2.Client(base_url=arguments.lichess, headers=headers), arguments.name, secret)
    engine = Engine(arguments.command or ["movemask", "uci"])
    broker = httpx2.Client(base_url=arguments.broker, timeout=60)
    while True:
        try:
            work(engine, broker, secret)
        except httpx2.HTTPError as error:
            print(f"{error}; again in {RETRY:g} s", file=sys.stderr)
            time.sleep(RETRY)


if __name__ == "__main__":
    main()
