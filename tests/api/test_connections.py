"""What one client could take from all: memory for what never ends, time of connections that nobody finishes."""

from __future__ import annotations

import ast
import asyncio
import inspect
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from movemask.api.connections import MAX_HEADERS, MAX_PIPELINED, Connection, ConnectionTracker
from movemask.api.server import listen
from movemask.settings import Settings
from tests.networks import write_fake
from tests.processes import served

pytestmark = pytest.mark.anyio

HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"

#: What `Connection` uses of uvicorn that its documentation does not promise: of the protocol, and of a request's cycle.
PROTOCOL = {
    "_unset_keepalive_if_required",
    "cycle",
    "headers",
    "loop",
    "parser",
    "pipeline",
    "scope",
    "transport",
    "url",
}
CYCLE = {
    "disconnected", "keep_alive", "message_event", "more_body", "response_complete", "response_started", "transport"
}  # fmt: skip


@asynccontextmanager
async def listening(app: Any, **limits: Any) -> AsyncIterator[tuple[list[Connection], int]]:
    """Connections that are made at a port, and the port."""
    config = uvicorn.Config(app, lifespan="off", ws="none")
    config.load()
    made: list[Connection] = []
    tracker = ConnectionTracker(Settings.read(**limits))
    watching = asyncio.create_task(tracker.watch())

    def opened() -> Connection:
        made.append(Connection(config=config, server_state=ServerState(), app_state={}, tracker=tracker))
        return made[-1]

    (listener,) = listen("127.0.0.1", 0)
    server = await asyncio.get_running_loop().create_server(opened, sock=listener)
    try:
        yield made, listener.getsockname()[1]
    finally:
        server.close()
        watching.cancel()
        tracker.close()
        await server.wait_closed()


async def sent(port: int, *parts: bytes) -> bytes:
    """All that comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.transport.abort()


async def answered(app: Any, *parts: bytes, **limits: Any) -> bytes:
    """All that an app's connection answers to what is sent."""
    async with listening(app, **limits) as (_, port):
        return await sent(port, *parts)


async def body_of(receive: Any) -> bytes:
    body = b""
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message["body"]
        if not message.get("more_body"):
            return bytes(body)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the size of the body."""
    text = str(len(await body_of(receive)))
    await PlainTextResponse(text)(scope, receive, send)


async def reflect(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the method, the names of the headers and the body."""
    text = b" ".join([scope["method"].encode(), *(name for name, _ in scope["headers"]), await body_of(receive)])
    await PlainTextResponse(text)(scope, receive, send)


async def refusing(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("too large", 413)(scope, receive, send)


LINE, TRAILER = b"x" * 10_000, b"X: yyyy\r\n" * 1000


@pytest.mark.parametrize(
    ("begun", "piece"),
    [
        (b"GET /", LINE),
        (b"GET / HTTP/1.1\r\nX-Y: ", LINE),
        (b"GET / HTTP/1.1\r\nX-Y", LINE),
        (CHUNKED, TRAILER),
        (CHUNKED + b"X-Y: ", LINE),
        (CHUNKED.removesuffix(b"0\r\n") + b"1;x=", LINE),
    ],
)
async def test_headers_and_trailers_without_end_are_refused_before_they_are_held(begun: bytes, piece: bytes) -> None:
    async with listening(echo) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun)
        reading = asyncio.create_task(reader.read())
        count, answer = 0, b""
        with suppress(ConnectionError):
            while not reading.done() and count < 20_000_000:
                count += len(piece)
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        with suppress(ConnectionError):
            answer = await reading
        writer.transport.abort()
    assert not answer or answer.startswith(b"HTTP/1.1 431 ")
    assert count < 5_000_000


async def test_large_headers_a_large_body_and_the_next_request_of_a_connection_are_taken() -> None:
    head = b"POST / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 40_000 + b"\r\nContent-Length: 1000000\r\n\r\n"
    async with listening(echo) as (_, port):
        answer = await sent(port, head, b"b" * 1_000_000 + LAST[:18], LAST[18:])
    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert b"\r\n\r\n1000000" in answer


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
async def test_a_request_that_is_never_sent_whole_is_given_up(raw: bytes, answer: bytes) -> None:
    got = await answered(echo, raw, head_seconds=0.2, body_seconds=0.2)
    assert got.startswith(answer)
    assert (b"408" in got) == (raw != b"")


async def test_an_answer_that_is_not_read_is_given_up() -> None:
    ended = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not made[0].cycle.disconnected:
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
            await asyncio.sleep(0)
        ended.set()

    async with listening(endless, read_seconds=0.3) as (made, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(GET)
        await asyncio.wait_for(ended.wait(), 20)
        writer.transport.abort()


@pytest.mark.parametrize("count", [MAX_HEADERS - 2, MAX_HEADERS + 1])
async def test_headers_are_counted(count: int) -> None:
    headers = b"".join(b"X-%d: y\r\n" % number for number in range(count))
    answer = await answered(echo, b"GET / HTTP/1.1\r\nHost: h\r\n" + headers + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 " if count < MAX_HEADERS else b"HTTP/1.1 431 ")


@pytest.mark.parametrize("size", [1000, 20_000_000])
@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_a_refusal_arrives_though_the_client_sends_its_whole_body_first(size: int, connection: str) -> None:
    head = f"POST / HTTP/1.1\r\nHost: h\r\nConnection: {connection}\r\nContent-Length: {size}\r\n\r\n".encode()
    answer = await answered(refusing, head, b"x" * size, LAST if connection == "keep-alive" else b"")
    assert answer.count(b"HTTP/1.1 413 ") == (2 if connection == "keep-alive" else 1)


@pytest.mark.parametrize("count", [MAX_PIPELINED, MAX_PIPELINED + 1, 10_000])
async def test_a_few_pipelined_requests_are_answered_and_more_end_the_connection(count: int) -> None:
    taken: list[int] = []

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        taken.append(1)
        await echo(scope, receive, send)

    answers = b""
    with suppress(ConnectionError):
        answers = await answered(counted, GET * (count - 1) + LAST)
    allowed = count <= MAX_PIPELINED
    assert answers.count(b"HTTP/1.1 200 ") == (MAX_PIPELINED if allowed else 0)
    assert len(taken) == (MAX_PIPELINED if allowed else 1)


async def test_requests_one_after_another_have_no_limit() -> None:
    async with listening(echo) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(5 * MAX_PIPELINED):
            writer.write(GET)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(1) == b"0"
        writer.transport.abort()


async def test_trailers_are_no_headers() -> None:
    trailers = b"X-Forwarded-For: 1.2.3.4\r\nAuthorization: Bearer x\r\n\r\n"
    answer = await answered(reflect, CHUNKED + trailers, LAST)
    assert b"POST host transfer-encoding abc" in answer
    assert answer.endswith(b"GET host connection ")


@pytest.mark.parametrize("size", [10, 100_000])
async def test_an_upgrade_that_nobody_wants_is_ignored(size: int) -> None:
    """Java's HttpClient asks for one with each request."""
    java = (
        b"POST /v1/policy HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: %d\r\nHost: h\r\n"
        b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\nContent-Type: x\r\n\r\n"
    ) % size
    answer = await answered(echo, java[:50], java[50:] + b"x" * size + java + b"x" * size + LAST)
    assert answer.count(b"HTTP/1.1 200 ") == 3
    assert answer.count(b"\r\n\r\n%d" % size) == 2


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n", b"400"),
        (b"GET / HTTP/1.0\r\n", b"200"),
        (b"CONNECT h:80 HTTP/1.1\r\nHost: h\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n", b"200"),
    ],
)
async def test_a_request_of_http_1_1_needs_one_host(head: bytes, status: bytes) -> None:
    answer = await answered(echo, head + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /\r\n\r\n", b"505"),
        (b"GET / HTTP/0.9\r\nHost: h\r\n\r\n", b"505"),
        (b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", b"505"),
        (b"GET / HTTP/1.0\r\nConnection: close\r\n\r\n", b"200"),
        (b"GET / HTTP/1.7\r\nHost: h\r\n\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        *(
            (b"POST / HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n3\r\nabc\r\n0\r\n\r\n" % coding, b"501")
            for coding in (
                b"Transfer-Encoding: gzip, chunked",
                b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
                b"transfer-encoding: identity, chunked",
            )
        ),
    ],
)
async def test_what_is_not_http_1_or_coded_twice_is_refused(raw: bytes, status: bytes) -> None:
    assert (await answered(echo, raw)).split(b" ")[1] == status


async def test_invalid_requests_are_counted_in_a_line_of_the_log_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """A thousand of them wrote 740 MB."""
    async with listening(echo) as (made, port):
        for _ in range(100):
            assert (await sent(port, b"\0\0\0")).startswith(b"HTTP/1.1 400 ")
        while made[0]._tracker.invalid:
            await asyncio.sleep(0.01)
    counts = [int(line.rpartition(" ")[2]) for line in caplog.messages if "invalid HTTP requests" in line]
    assert sum(counts) == 100
    assert len(counts) < 50


@pytest.mark.parametrize("after", [b"\0\0\0", b"GET / HTTP/1.1\r\n\r\n"])
async def test_what_follows_a_request_cannot_cut_its_answer_off(after: bytes) -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        await echo(scope, receive, send)

    answer = await answered(slow, HEAD + b"\r\n1234567890" + after)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n10")
    assert b"connection: close" in answer


@pytest.mark.parametrize(("path", "length"), [("/v1/policy", 400_000), ("/v1/nothing", 10)])
def test_a_client_that_waits_to_send_a_refused_body_is_told(tmp_path: Path, path: str, length: int) -> None:
    write_fake(tmp_path)
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
    with served(tmp_path) as (_, port), socket.create_connection(("127.0.0.1", port), 20) as client:
        client.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode())
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
    assert answer.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 404 "))
    assert b"connection: close" in answer


async def test_a_head_does_not_wait_for_its_body() -> None:
    body_may_come = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await body_may_come.wait()
        await send({"type": "http.response.body", "body": b"ok"})

    async with listening(app) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).startswith(b"HTTP/1.1 200")
        body_may_come.set()
        assert await reader.readexactly(2) == b"ok"
        writer.transport.abort()


async def test_the_internals_of_uvicorn_that_are_used_are_listed_and_there() -> None:
    """A new uvicorn may rename them; pyproject.toml has the first version that nobody has looked at."""
    tree = ast.parse(inspect.getsource(Connection))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    used = {(ast.unparse(node.value), node.attr) for node in attributes}
    set_here = {node.attr for node in attributes if isinstance(node.ctx, ast.Store)} | set(vars(Connection))
    async with listening(echo) as (made, port):
        await sent(port, LAST)
        plain = HttpToolsProtocol(uvicorn.Config(echo, ws="none"), ServerState(), {})
        of_protocol = (set(dir(plain)) - set(vars(Connection))) | (set(dir(made[0])) - set_here)
        assert set(dir(made[0].cycle)) >= CYCLE
    assert {name for place, name in used if place == "self" and name in of_protocol} == PROTOCOL
    assert {name for place, name in used if place == "self.cycle"} == CYCLE
