"""Random requests over all routes, right and wrong ones; the answers are compared with python-chess."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chess

from benchmarks.hostile.clients import Connection, positions, request, service
from benchmarks.hostile.trial import Trial

_ALPHABET = 'rnbqkpRNBQKP12345678/ wbKQkq-ah36 0123456789\x00é"\\'
_WORDS = ("fen", "moves", "positions", "model", "elo", "temperature", "include", "pgn", "logits", "x", "")
_GETS = (
    "/v1/leakage", "/v1/leakage/history", "/v1/leakage/worst", "/v1/leakage/positions", "/v1/models", "/v1/models/x",
    "/livez", "/readyz", "/metrics", "/openapi.json", "/docs", "/nothing", "//", "/v1/../v1/models", "/%00", "/%ff",
)  # fmt: skip
_NAMES = (*_WORDS, "since", "limit", "by", "kind", "cursor")
_VALUES = ("1", "-1", "raw", "9" * 30, "%00", "json", "24h", "")
_POSTS = ("/v1/policy", "/v1/policy/batch", "/v1/policy/sweep", "/v1/move", "/v1/games", "/v1/audit", "/v1/leakage")


class Fuzz:
    """Counts what was asked, and keeps what was wrong."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.fens = positions(2000, seed)
        self.items = 0
        self.requests = 0
        self.statuses: Counter[int] = Counter()
        self.wrong: list[str] = []

    def fen(self) -> str:
        """A FEN, or something like one."""
        fen = self.rng.choice(self.fens)
        if self.rng.random() < 0.5:
            return fen
        text = list(fen)
        for _ in range(self.rng.randrange(1, 5)):
            at = self.rng.randrange(len(text) + 1)
            how = self.rng.random()
            if how < 0.5 and at < len(text):
                text[at] = self.rng.choice(_ALPHABET)
            elif how < 0.75:
                text.insert(at, self.rng.choice(_ALPHABET))
            elif at < len(text):
                del text[at]
        return "".join(text)

    def value(self, depth: int = 0) -> Any:
        """Any JSON."""
        kind = self.rng.randrange(9 if depth < 4 else 6)
        if kind < 6:
            simple = (None, True, self.rng.randrange(-(2**70), 2**70), self.rng.gauss(0, 1e9), self.fen(), "startpos")
            return simple[kind]
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.rng.randrange(5))]
        return {self.rng.choice(_WORDS): self.value(depth + 1) for _ in range(self.rng.randrange(4))}

    def check(self, item: dict[str, Any], result: dict[str, Any]) -> None:
        """Compares the answer to one position with python-chess."""
        self.items += 1
        board, fault = _read(item["fen"])
        if "error" in result:
            if result["error"]["status"] >= 500 or (board is not None and not fault):
                self.wrong.append(f"{item}: {result['error']['detail'][:200]}")
            return
        if board is None or fault:
            self.wrong.append(f"{item}: was answered, python-chess: {fault}")
            return
        found = {move["uci"] for move in result["moves"]}
        if found != {move.uci() for move in board.legal_moves}:
            self.wrong.append(f"{item}: other moves than python-chess's")
        total = sum(move["probability"] for move in result["moves"])
        if found and abs(total - 1) > 1e-9:
            self.wrong.append(f"{item}: the probabilities sum to {total}")

    async def batch(self, connection: Connection, size: int) -> None:
        items = [{"fen": self.fen()} for _ in range(size)]
        status, body = await self._ask(connection, request("/v1/policy/batch", {"positions": items}))
        if status == 200:
            for item, result in zip(items, json.loads(body)["results"], strict=True):
                self.check(item, result)
        elif status != 503:
            self.wrong.append(f"a batch: {status} {body[:200]!r}")

    async def anything(self, connection: Connection) -> None:
        """A request that nobody would send."""
        rng = self.rng
        if rng.random() < 0.4:
            query = "&".join(f"{rng.choice(_NAMES)}={rng.choice(_VALUES)}" for _ in range(rng.randrange(3)))
            path = rng.choice(_GETS) + ("?" + query if query else "")
            raw = request(path, method=rng.choice(("GET", "HEAD", "GET", "DELETE")))
        else:
            fields = {name: self.value() for name in rng.sample(_WORDS, 3)}
            raw = request(rng.choice(_POSTS), self.value() if rng.random() < 0.3 else fields)
            head, _, body = raw.partition(b"\r\n\r\n")
            if body and rng.random() < 0.3:
                damaged = bytearray(body)
                for _ in range(rng.randrange(1, 8)):
                    damaged[rng.randrange(len(damaged))] = rng.randrange(256)
                raw = head + b"\r\n\r\n" + bytes(damaged)
        if raw.startswith(b"HEAD"):
            raw = raw.replace(b"\r\nHost", b"\r\nConnection: close\r\nHost", 1)
        status, body = await self._ask(connection, raw, head=raw.startswith(b"HEAD"))
        if status >= 500 and status != 503:
            self.wrong.append(f"{raw[:300]!r}: {status} {body[:200]!r}")

    async def _ask(self, connection: Connection, raw: bytes, *, head: bool = False) -> tuple[int, bytes]:
        self.requests += 1
        try:
            status, body = await connection.ask(raw, head=head)
        except (OSError, EOFError) as error:
            self.wrong.append(f"{raw[:300]!r}: {error!r}")
            return 0, b""
        self.statuses[status] += 1
        return status, body


def _read(fen: str) -> tuple[chess.Board | None, str]:
    """python-chess's board, and why the service may refuse it though python-chess reads it."""
    if fen == "startpos":
        return chess.Board(), ""
    try:
        board = chess.Board(fen.strip("\"'"))  # the service reads a FEN in quotation marks
    except ValueError as error:
        return None, str(error)
    status = board.status()
    return board, "" if status == chess.STATUS_VALID else str(status)


def fuzz(seconds: float, seed: int | None = None, tally: Path | None = None) -> Iterator[Trial]:
    """Positions in batches and arbitrary requests, for a time; the seed is told. With a `tally`, what earlier runs have
    left in that file is added, so that a long trial may be run in pieces."""
    seed = random.randrange(2**31) if seed is None else seed
    found = Fuzz(seed)

    async def trial(port: int) -> None:
        end = time.monotonic() + seconds

        async def client() -> None:
            connection = Connection(port)
            while time.monotonic() < end:
                await found.batch(connection, 1000)
                for _ in range(100):
                    await found.anything(connection)
            connection.close()

        await asyncio.gather(*(client() for _ in range(3)))

    with service() as tried:
        asyncio.run(trial(tried.port))
        peak = tried.peak_mb
    for text in found.wrong[:20]:
        print("WRONG:", text)
    counts = Counter({"positions": found.items, "requests": found.requests, "wrong": len(found.wrong), "runs": 1})
    counts.update({str(status): count for status, count in found.statuses.items()})
    if tally is not None:
        if tally.exists():
            counts.update(json.loads(tally.read_text()))
        tally.write_text(json.dumps(counts))
    statuses = ", ".join(f"{counts[name]:,} x {name}" for name in sorted(filter(str.isdigit, counts)))
    seen = (
        f"{counts['positions']:,} positions and {counts['requests']:,} requests ({statuses}) in {counts['runs']} runs; "
        f"{counts['wrong']} wrong; peak {peak:.0f} MB; last seed {seed}"
    )
    kept = not counts["wrong"] and peak < 600
    promised = "right, or a 4xx; never a 500; under 600 MB"
    yield Trial("random positions and requests over all routes", promised, seen, kept)
