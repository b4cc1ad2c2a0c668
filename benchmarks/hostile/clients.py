"""Clients of the trials: plain sockets, so that they can misbehave, and a service to try them on."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chess

from benchmarks.servers import family

ROOT = Path(__file__).parents[2]


@dataclass
class Service:
    """A service of its own on a loopback port, on the shipped network."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path
    cpu_before: float = 0.0
    peak_before: float = 0.0

    @property
    def rss_mb(self) -> float:
        """Resident memory in MB, summed over the processes, so that what they share counts more than once."""
        return self._memory("VmRSS:")

    @property
    def peak_mb(self) -> float:
        """The most resident memory of each process so far, in MB, summed."""
        return self._memory("VmHWM:")

    @property
    def grown_mb(self) -> float:
        """By how much the processes have been larger than when the service was ready, in MB, summed."""
        return self.peak_mb - self.peak_before

    def rest(self) -> None:
        """Waits until every worker is up: until a second in which no CPU time is used. Counts begin there."""
        while (used := self.cpu_seconds) > 0.02:
            self.cpu_before += used
            time.sleep(1)
        self.peak_before = self.peak_mb

    def _memory(self, what: str) -> float:
        texts = (Path(f"/proc/{pid}/status").read_text() for pid in family(self.process.pid))
        return sum(int(text.split(what)[1].split()[0]) for text in texts) / 1024

    @property
    def cpu_seconds(self) -> float:
        """CPU time since all of it was ready."""
        return sum(map(_cpu_seconds, family(self.process.pid))) - self.cpu_before

    @property
    def descriptors(self) -> int:
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in family(self.process.pid))

    @property
    def log_bytes(self) -> int:
        return (self.folder / "log.txt").stat().st_size


def _cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


#: Set by `--workers`: how many workers the services have whose trial does not say.
WORKERS = "MOVEMASK_HOSTILE_WORKERS"

_opened = itertools.count()


def source() -> tuple[str, int]:
    """A loopback address for a client's socket, another one for every fifty."""
    return f"127.0.{next(_opened) // 50 % 250}.2", 0


def _ready(process: subprocess.Popen[bytes], port: int, message: str) -> None:
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except OSError as error:
            if process.poll() is not None:
                raise RuntimeError(message) from error
            time.sleep(0.1)


@contextmanager
def service(
    environment: Mapping[str, str] | None = None, command: Sequence[str] | None = None, **settings: str
) -> Iterator[Service]:
    """A running service with these settings (MOVEMASK_…, in lower case without the prefix) and other variables;
    `command` is what runs `movemask`."""
    with tempfile.TemporaryDirectory(prefix="movemask-hostile-") as folder:
        port = free_port()
        if WORKERS in os.environ:
            settings = {"workers": os.environ[WORKERS], **settings}
        variables = {f"MOVEMASK_{name.upper()}": value for name, value in settings.items()}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MOVEMASK_")}
        ours = {"PYTHONPATH": str(ROOT / "service"), "MOVEMASK_PORT": str(port)}
        with open(Path(folder) / "log.txt", "wb") as log:
            process = subprocess.Popen(
                [*(command or (sys.executable, "-m", "movemask")), "serve"],
                cwd=folder,
                env={**inherited, **ours, **variables, **(environment or {})},
                stdout=log,
                stderr=log,
            )
        try:
            _ready(process, port, f"see {folder}/log.txt")
            server = Service(process, port, Path(folder))
            server.rest()
            yield server
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()


def positions(count: int, seed: int = 0) -> list[str]:
    """FENs of random games."""
    rng, fens = random.Random(seed), []
    while len(fens) < count:
        board = chess.Board()
        for _ in range(rng.randrange(8, 80)):
            moves = list(board.legal_moves)
            if not moves:
                break
            board.push(rng.choice(moves))
            fens.append(board.fen())
    return fens[:count]


def request(path: str, body: Any = None, *headers: str, method: str = "") -> bytes:
    """The bytes of a request."""
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method or ('POST' if data else 'GET')} {path} HTTP/1.1", "Host: localhost", *headers]
    if data:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    return "\r\n".join([*lines, "", ""]).encode() + data


@dataclass
class Times:
    """Seconds of the requests of a trial, by status; 0 stands for a connection that failed."""

    seconds: dict[int, list[float]] = field(default_factory=dict)

    def add(self, status: int, seconds: float) -> None:
        self.seconds.setdefault(status, []).append(seconds)

    def ms(self, status: int, share: float) -> float:
        """The quantile of a status, in milliseconds; NaN without any."""
        values = sorted(self.seconds.get(status, []))
        return 1e3 * values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")

    def count(self, status: int) -> int:
        return len(self.seconds.get(status, []))


class Connection:
    """A connection that is kept, and opened again if the service closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, raw: bytes, *, head: bool = False) -> tuple[int, bytes]:
        """Status and body of the answer; `head` if the answer has none."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20, local_addr=source())
        reader, writer = self._streams
        try:
            writer.write(raw)
            await writer.drain()
            head_text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = head_text.partition("content-length:")[2].split("\r\n")[0].strip()
            if "transfer-encoding: chunked" in head_text and not head:
                body = await _chunks(reader)
            else:
                body = await reader.readexactly(int(length)) if length and not head else b""
        except BaseException:
            self.close()
            raise
        if "connection: close" in head_text:
            self.close()
        return int(head_text.split()[1]), body

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int(await reader.readline(), 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)


async def repeat(port: int, raw: bytes, end: float, times: Times, *, pause: float = 0.0, patient: bool = False) -> None:
    """Sends a request again and again until `end` (of time.monotonic); if `patient`, a second after a refusal."""
    connection = Connection(port)
    while time.monotonic() < end:
        started = time.monotonic()
        try:
            status, _ = await connection.ask(raw)
        except (OSError, EOFError, asyncio.IncompleteReadError):
            status = 0
        times.add(status, time.monotonic() - started)
        if pause or (patient and status in (429, 503)):
            await asyncio.sleep(pause or 1)
    connection.close()
