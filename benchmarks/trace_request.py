"""Which files of the package run between `accept` and the last byte of an answer: `python -m benchmarks.trace_request`.

Serves the shipped network in this process as `movemask serve` does, warms it up, and traces every call in all threads
(`sys.setprofile`) for one more `POST /v1/policy`. What is recorded of earlier ones meanwhile does not count.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

import movemask
from movemask.api.app import create_app
from movemask.api.connections import Connection, ConnectionTracker
from movemask.settings import Settings, shipped_models

PACKAGE = str(Path(movemask.__file__).parent) + "/"

_BODY = b'{"moves": ["e2e4", "e7e5"], "elo": 1500}'
_REQUEST = b"POST /v1/policy HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
_REQUEST += b"Content-Length: %d\r\n\r\n" % len(_BODY) + _BODY

_WARM_UP = 20


class Calls:
    """Counts calls of the package's functions, by file, while `counting`."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.armed = self.counting = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if self.counting and event == "call" and name.startswith(PACKAGE) and not _recording(frame):
            self.files[name.removeprefix(PACKAGE)] += 1


def _recording(frame: FrameType | None) -> bool:
    """Whether a call is of the store or of what follows the answers of earlier requests."""
    while frame is not None:
        if frame.f_code.co_name == "_follow_up" or frame.f_code.co_filename.startswith(PACKAGE + "store/"):
            return True
        frame = frame.f_back
    return False


def traced(models: Path) -> Counter[str]:
    """Calls of one request, by file."""
    calls = Calls()

    class Traced(Connection):
        """Counts from the connection's first call to its last byte."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            calls.counting = calls.armed
            super().connection_made(transport)

        def on_response_complete(self) -> None:
            calls.counting = False
            super().on_response_complete()

    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        database = f"sqlite:///{folder}/audit.db"
        settings = Settings.read(database_url=database, models_dir=models, threads=1)
        http: Any = partial(Traced, tracker=ConnectionTracker(settings))
        server = uvicorn.Server(uvicorn.Config(create_app(settings), http=http, log_config=None, access_log=False))

        def run() -> None:
            sys.setprofile(calls)
            asyncio.run(server.serve([listener]))

        threading.setprofile(calls)  # of the threads that the service starts
        thread = threading.Thread(target=run)
        thread.start()
        try:
            for number in range(_WARM_UP + 1):
                calls.armed = number == _WARM_UP
                _ask(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()
            threading.setprofile(None)
    return calls.files


def _ask(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(_REQUEST)
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 200 "), answer


def main() -> None:
    """Prints the table."""
    found = traced(shipped_models())
    print("| file | calls |\n|---|---:|")
    for name, count in found.most_common():
        print(f"| {name} | {count} |")
    print(f"| **{len(found)} files** | **{found.total()}** |")


if __name__ == "__main__":
    main()
