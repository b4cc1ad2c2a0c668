"""What clients of several workers would lose: 40 ms for each answer, waiting for the network to be quiet; and what one
client could take from all: memory for headers without end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from movemask.api.connections import Connection


async def nothing(scope: object, receive: object, send: object) -> None:
    raise AssertionError("nothing is asked")


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[tuple[list[Connection], int]]:
    """Connections that are made at a port, and the port."""
    config = uvicorn.Config(app, lifespan="off")
    config.load()
    made: list[Connection] = []

    def opened() -> Connection:
        made.append(Connection(config=config, server_state=ServerState(), app_state={}))
        return made[-1]

    with socket.socket(socket.AF_INET) as shared:  # as uvicorn makes it, without the protocol's number
        shared.bind(("127.0.0.1", 0))
        server = await asyncio.get_running_loop().create_server(opened, sock=shared)
        yield made, shared.getsockname()[1]
        server.close()
        await server.wait_closed()


def test_answers_are_sent_at_once_on_a_socket_that_workers_share() -> None:
    async def main() -> int:
        async with listening(nothing) as (made, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            while not made or made[0].transport is None:
                await asyncio.sleep(0.01)
            found: int = made[0].transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            writer.close()
            await writer.wait_closed()
        return found

    assert asyncio.run(main())


@pytest.mark.parametrize("begun", [b"GET /", b"GET / HTTP/1.1\r\nX-Y: ", b"GET / HTTP/1.1\r\nX-Y"])
def test_headers_without_end_are_refused_before_they_are_held(begun: bytes) -> None:
    async def main() -> tuple[bytes, int]:
        async with listening(nothing) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(begun)
            sent = 0
            while not reader.at_eof() and sent < 20_000_000:
                sent += 10_000
                try:
                    writer.write(b"x" * 10_000)
                    await writer.drain()
                except ConnectionError:
                    break
                await asyncio.sleep(0)
            try:
                answer = await reader.read()
            except ConnectionError:
                answer = b""
            writer.transport.abort()
        return answer, sent

    answer, sent = asyncio.run(main())
    assert not answer or answer.startswith(b"HTTP/1.1 400 ")
    assert sent < 5_000_000


def test_large_headers_a_large_body_and_the_next_request_of_a_connection_are_taken() -> None:
    async def empty(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            continue
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def main() -> bytes:
        async with listening(empty) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for part in (b"POST / HTTP/1.1\r\nHost: h\r\nX: ", b"x" * 40_000, b"\r\nContent-Length: 1000000\r\n\r\n"):
                writer.write(part)
                await writer.drain()
            writer.write(b"b" * 1_000_000 + b"GET / HTTP/1.1\r\nHo")
            await writer.drain()
            first = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"st: h\r\nConnection: close\r\n\r\n")
            rest = await reader.read()
            writer.close()
            await writer.wait_closed()
        return first + rest

    assert asyncio.run(main()).count(b"HTTP/1.1 204 ") == 2
