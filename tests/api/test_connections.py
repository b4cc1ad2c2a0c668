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
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from movemask.api.app import create_app
from movemask.api.connections import MAX_HEADERS, Connection
from movemask.api.doors import Doors, Limits
from movemask.api.refusal import refuse
from movemask.settings import Settings


async def nothing(scope: object, receive: object, send: object) -> None:
    raise AssertionError("nothing is asked")


@asynccontextmanager
async def listening(app: Any, full: Any = lambda: False, **limits: Any) -> AsyncIterator[tuple[list[Connection], int]]:
    """Connections that are made at a port, and the port."""
    config = uvicorn.Config(app, lifespan="off")
    config.load()
    made: list[Connection] = []
    doors = Doors(Limits(**limits), full)
    watching = asyncio.create_task(doors.watch())

    def opened() -> Connection:
        made.append(Connection(config=config, server_state=ServerState(), app_state={}, doors=doors))
        return made[-1]

    with socket.socket(socket.AF_INET) as shared:  # as uvicorn makes it, without the protocol's number
        shared.bind(("127.0.0.1", 0))
        server = await asyncio.get_running_loop().create_server(opened, sock=shared)
        yield made, shared.getsockname()[1]
        server.close()
        watching.cancel()
        doors.close()
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
    assert not answer or answer.startswith(b"HTTP/1.1 431 ")
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


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the size of the body."""
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        size += len(message["body"])
        if not message.get("more_body"):
            break
    text = str(size).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


async def refusing(scope: Any, receive: Any, send: Any) -> None:
    await refuse(PlainTextResponse("too large", 413), scope, receive, send)


async def sent(port: int, *parts: bytes, eof: bool = False) -> bytes:
    """All that comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if eof:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.transport.abort()


HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n"


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        (b"", b""),
        (b"GET / HT", b"HTTP/1.1 408 "),
        (HEAD, b"HTTP/1.1 408 "),
        (HEAD + b"\r\n12345", b"HTTP/1.1 408 "),
        (HEAD + b"\r\n1234567890GET / HTTP/1.1\r\nHo", b"HTTP/1.1 200 "),
    ],
)
def test_a_request_that_is_never_sent_whole_is_given_up(raw: bytes, answer: bytes) -> None:
    async def main() -> bytes:
        async with listening(echo, head_seconds=0.2, body_seconds=0.2) as (_, port):
            return await sent(port, raw)

    got = asyncio.run(main())
    assert got.startswith(answer)
    assert (b"408" in got) == (raw != b"")


def test_an_answer_that_is_not_read_is_given_up() -> None:
    ended = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while (await asyncio.wait_for(asyncio.shield(asyncio.sleep(0, True)), 5)) and not made[
                0
            ].cycle.disconnected:
                await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        finally:
            ended.set()

    made: list[Connection] = []

    async def main() -> None:
        async with listening(endless, read_seconds=0.3) as (connections, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            while not connections:
                await asyncio.sleep(0.01)
            made.append(connections[0])
            await asyncio.wait_for(ended.wait(), 20)
            writer.transport.abort()

    asyncio.run(main())


@pytest.mark.parametrize("count", [MAX_HEADERS - 1, MAX_HEADERS + 1])
def test_headers_are_counted(count: int) -> None:
    async def main() -> bytes:
        async with listening(echo) as (_, port):
            headers = b"".join(b"X-%d: y\r\n" % number for number in range(count))
            return await sent(port, b"GET / HTTP/1.1\r\n" + headers + b"Connection: close\r\n\r\n")

    assert asyncio.run(main()).startswith(b"HTTP/1.1 200 " if count < MAX_HEADERS else b"HTTP/1.1 431 ")


def test_an_address_has_as_many_connections_as_it_may_and_gets_them_back() -> None:
    async def main() -> None:
        async with listening(echo, per_address=2, head_seconds=60) as (_, port):
            kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            await asyncio.sleep(0.05)
            assert (await sent(port)).startswith(b"HTTP/1.1 503 ")
            kept[0][1].close()
            await kept[0][1].wait_closed()
            await asyncio.sleep(0.05)
            answer = await sent(port, b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 ")
            kept[1][1].close()

    asyncio.run(main())


@pytest.mark.parametrize("size", [1000, 20_000_000])
def test_a_refusal_arrives_though_the_client_sends_its_whole_body_first(size: int) -> None:
    async def main() -> bytes:
        async with listening(refusing) as (_, port):
            head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size
            after = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
            return await sent(port, head, b"x" * size, after)

    answer = asyncio.run(main())
    assert answer.count(b"HTTP/1.1 413 ") == 2


def test_a_client_that_has_closed_its_sending_side_gets_its_answer() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.2)
        await echo(scope, receive, send)

    async def main() -> bytes:
        async with listening(slow) as (_, port):
            return await sent(port, HEAD + b"\r\n1234567890", eof=True)

    answer = asyncio.run(main())
    assert b"HTTP/1.1 200 OK" in answer
    assert answer.endswith(b"10")


def test_the_work_of_a_client_that_has_closed_both_sides_is_ended() -> None:
    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        ended.set()

    ended = asyncio.Event()

    async def main() -> None:
        async with listening(waiting) as (_, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"\r\n1234567890")
            await writer.drain()
            await asyncio.sleep(0.1)
            writer.close()
            await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(main())


@pytest.mark.parametrize("parts", [1, 2, 40])
@pytest.mark.parametrize("more", [b"", b"X: y\r\nExpect: nothing\r\n"])
def test_a_request_that_cannot_be_taken_is_refused_at_once_and_the_connection_kept(parts: int, more: bytes) -> None:
    full = ["full"]

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        post = HEAD + more + b"\r\n1234567890"
        size = -(-len(post) // parts)
        for start in range(0, len(post), size):
            writer.write(post[start : start + size])
            await asyncio.sleep(0.002)
        head = await reader.readuntil(b"\r\n\r\n")
        return head + await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))

    async def main() -> None:
        async with listening(echo, lambda: bool(full)) as (_, port):
            streams = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(3):
                refused = await ask(*streams)
                assert refused.startswith(b"HTTP/1.1 503 ")
                assert b"retry-after: 1" in refused
                assert b'"type":"urn:movemask:problem:overloaded"' in refused
            full.clear()
            for _ in range(2):
                answer = await ask(*streams)
                assert answer.startswith(b"HTTP/1.1 200 ")
                assert answer.endswith(b"\r\n10")
            full.append("full")
            assert (await ask(*streams)).startswith(b"HTTP/1.1 503 ")
            streams[1].transport.abort()

    asyncio.run(main())


def test_a_request_that_comes_while_another_is_answered_is_answered_too() -> None:
    made: list[Connection] = []

    async def main() -> bytes:
        async with listening(echo, lambda: bool(made and made[0].cycle)) as (connections, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while not connections:
                await asyncio.sleep(0.01)
            made.append(connections[0])
            post = HEAD + b"\r\n1234567890"
            writer.write(post + post + HEAD + b"Connection: close\r\n\r\n1234567890")
            answer = await asyncio.wait_for(reader.read(), 20)
            writer.transport.abort()
        return answer

    assert asyncio.run(main()).count(b"HTTP/1.1 200 ") == 3


def test_a_connection_that_was_refused_is_kept_for_as_long_as_any_other() -> None:
    async def main() -> bytes:
        async with listening(echo, lambda: True) as (made, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while not made:
                await asyncio.sleep(0.01)
            made[0].timeout_keep_alive = 1
            writer.write(HEAD + b"\r\n1234567890")
            got = await asyncio.wait_for(reader.read(), 20)
            writer.transport.abort()
        return got

    assert asyncio.run(main()).count(b"HTTP/1.1 503 ") == 1


def test_probes_are_answered_however_full_the_service_is() -> None:
    async def main() -> bytes:
        async with listening(echo, lambda: True) as (_, port):
            return await sent(port, b"GET /livez?x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")

    assert asyncio.run(main()).startswith(b"HTTP/1.1 200 ")


def test_livez_is_answered_at_once_under_overload_and_no_otherwise_than_always() -> None:
    async def main() -> tuple[int, list[bytes]]:
        full: list[bool] = []
        app = create_app(Settings.read())
        asked = b"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n"
        async with listening(app, lambda: bool(full)) as (made, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            answers = []
            for _ in range(3):
                writer.write(asked)
                head = await reader.readuntil(b"\r\n\r\n")
                answers.append(head + await reader.readexactly(18))
                full.append(True)
            writer.transport.abort()
            return made[0].server_state.total_requests, answers

    tasks, (usual, *others) = asyncio.run(main())

    def fields(answer: bytes) -> set[bytes]:
        return {line for line in answer.split(b"\r\n") if not line.startswith((b"x-request-id", b"date"))}

    assert tasks == 1
    for other in others:
        assert other.startswith(b"HTTP/1.1 200 OK\r\n")
        assert other.endswith(b'{"status":"alive"}')
        assert fields(other) == fields(usual)
