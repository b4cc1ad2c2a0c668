"""What the guard of connections costs a request: `python -m benchmarks.guard`.

The same requests go to uvicorn's two protocols alone and to httptools' through the guard, over a transport in memory,
in turns. Prints microseconds of a processor for each request, medians of the rounds.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from movemask.server.edge.guard import ConnectionLimits, GuardedApp, Guards

_BODY = (
    b'{"fen": "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1", "elo": {"self": 1500, "opponent": 1500}}'
)
_REQUEST = (
    b"POST /v1/policy HTTP/1.1\r\nHost: localhost:8000\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
    b"Connection: keep-alive\r\nUser-Agent: python-httpx/0.28.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
) % len(_BODY) + _BODY
_ANSWER = b"x" * 1500
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_ANSWER))]
_REQUESTS, _ROUNDS = 3_000, 9


class Memory(asyncio.Transport):
    """A transport whose client reads everything at once."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = 0

    def write(self, data: Any) -> None:
        self.written += len(data)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body and answers."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _ANSWER})


async def _cost(protocol: Any) -> float:
    """Microseconds of CPU a request, on one connection."""
    transport = Memory()
    protocol.connection_made(transport)
    if isinstance(protocol, asyncio.BufferedProtocol):

        def give() -> None:
            protocol.get_buffer(-1)[: len(_REQUEST)] = _REQUEST
            protocol.buffer_updated(len(_REQUEST))
    else:

        def give() -> None:
            protocol.data_received(_REQUEST)

    started = time.process_time()
    for _ in range(_REQUESTS):
        before = transport.written
        give()
        while transport.written < before + len(_ANSWER):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    return 1e6 * (time.process_time() - started) / _REQUESTS


def main() -> None:
    """Prints the costs."""
    guards = Guards(ConnectionLimits(10**9, None, 10.0, 10.0, 10.0))
    makers: dict[str, Callable[..., Any]] = {
        "httptools": HttpToolsProtocol,
        "httptools through the guard": guards.protocol,
        "h11": H11Protocol,
    }
    found: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(_ROUNDS):
        for name, costs in found.items():
            served = GuardedApp(app) if "guard" in name else app
            config = uvicorn.Config(served, ws="none", log_config=None, access_log=False)
            config.load()
            options = {"config": config, "server_state": ServerState(), "app_state": {}}

            async def trial(make: Callable[..., Any] = makers[name], options: dict[str, Any] = options) -> float:
                return await _cost(make(**options))

            costs.append(asyncio.run(trial()))
    for name, costs in found.items():
        print(f"{name}: {statistics.median(costs):.0f} µs")


if __name__ == "__main__":
    main()
