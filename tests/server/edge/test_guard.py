"""Guard: limits on heads, bodies, pipelining, slow clients and connections."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import struct
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from itertools import pairwise
from typing import Any

import hypothesis
import pytest
import uvicorn
from hypothesis import strategies
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from movemask.schemas.answers import Problem
from movemask.server.edge import guard
from movemask.server.edge.context import while_connected
from movemask.server.edge.guard import MAX_PIPELINED, ConnectionLimits, Guard, GuardedApp, Guards
from movemask.server.edge.request_reader import MAX_HEADERS
from movemask.server.edge.shared_rates import client_address
from movemask.server.metrics import Metrics
from movemask.server.process.listening import Port

pytestmark = pytest.mark.anyio

HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
#: As the settings' defaults.
LIMITS = ConnectionLimits(connections=2048, of_an_address=256, head_seconds=10, body_seconds=60, read_seconds=30)
LAST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@asynccontextmanager
async def listening(
    app: Any,
    *,
    inner: Any = HttpToolsProtocol,
    processes: int = 1,
    keep_alive: int = 5,
    count: Callable[[Problem], None] = lambda refusal: None,
    **limits: Any,
) -> AsyncIterator[tuple[list[Guard], int]]:
    """Guards of the connections that are made at a port, and the port."""
    config = uvicorn.Config(GuardedApp(app), lifespan="off", ws="none", log_config=None, timeout_keep_alive=keep_alive)
    config.load()
    guards = Guards(LIMITS._replace(**limits), processes, count=count, inner=inner)
    connections = list[Guard]()
    watching = asyncio.create_task(guards.watch())

    def opened() -> Guard:
        connections.append(guards.protocol(config=config, server_state=ServerState(), app_state={}))
        return connections[-1]

    with closing(Port("127.0.0.1", 0)) as port:
        (listener,) = port.sockets.bind()
    server = await asyncio.get_running_loop().create_server(opened, sock=listener)
    try:
        yield connections, listener.getsockname()[1]
    finally:
        server.close()
        watching.cancel()
        guards.close()
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


async def until(condition: Callable[[], bool]) -> None:
    """Waits until a condition of this process holds."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


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
    ("start", "piece"),
    [
        (b"GET /", LINE),
        (b"GET / HTTP/1.1\r\nX-Y: ", LINE),
        (b"GET / HTTP/1.1\r\nX-Y", LINE),
        (CHUNKED, TRAILER),
        (CHUNKED + b"X-Y: ", LINE),
        (CHUNKED.removesuffix(b"0\r\n") + b"1;x=", LINE),
    ],
)
async def test_endless_headers_and_trailers_are_rejected(start: bytes, piece: bytes) -> None:
    async with listening(echo) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(start)
        reading = asyncio.create_task(reader.read())
        count, response = 0, b""
        with suppress(ConnectionError):
            while not reading.done() and count < 20_000_000:
                count += len(piece)
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        with suppress(ConnectionError):
            response = await reading
        writer.transport.abort()
    assert not response or response.startswith(b"HTTP/1.1 431 ")
    assert count < 5_000_000


async def test_large_request_and_the_next_one_are_accepted() -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40_000 + b"\r\nContent-Length: 1000000\r\n\r\n"
    async with listening(echo) as (_, port):
        response = await sent(port, head, b"b" * 1_000_000 + LAST[:18], LAST[18:])
    assert response.count(b"HTTP/1.1 200 ") == 2
    assert b"\r\n\r\n1000000" in response


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
async def test_unfinished_request_is_408(raw: bytes, answer: bytes) -> None:
    got = await answered(echo, raw, head_seconds=0.2, body_seconds=0.2)
    assert got.startswith(answer)
    assert (b"408" in got) == (raw != b"")


async def test_unread_answer_is_cut_off() -> None:
    ended = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while guards[0].transport.get_extra_info("socket").fileno() >= 0:
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
            await asyncio.sleep(0)
        ended.set()

    async with listening(endless, read_seconds=0.3) as (guards, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(GET)
        await asyncio.wait_for(ended.wait(), 20)
        writer.transport.abort()


def look(guard: Guard, *, pace: int, seconds: float = 6) -> None:
    """Looks at a connection, as the service does twice a second for so many seconds."""
    for _ in range(int(2 * seconds)):
        guard.look(time.monotonic(), LIMITS.read_seconds, pace)


@pytest.mark.parametrize(("pace", "ended"), [(0, False), (4096, True)])
async def test_slow_body_gives_way_when_a_pace_is_asked(pace: int, ended: bool) -> None:
    async with listening(echo) as (guards, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"\r\n12345")
        await until(lambda: bool(guards) and guards[0]._requests.in_body)
        look(guards[0], pace=pace, seconds=5)
        assert not guards[0].transport.is_closing()
        look(guards[0], pace=pace, seconds=1)
        if not ended:
            writer.write(b"67890")
        response = await asyncio.wait_for(reader.readuntil(b"\r\n"), 20)
        writer.transport.abort()
    assert response.startswith(b"HTTP/1.1 408 " if ended else b"HTTP/1.1 200 ")


async def test_body_at_the_asked_pace_is_read() -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n"
    async with listening(echo) as (guards, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        for size in (20_000, 40_000, 60_000):
            writer.write(b" " * 20_000)
            received = len(head) + size
            await until(lambda received=received: bool(guards) and guards[0]._received == received)  # type: ignore[misc]
            look(guards[0], pace=3900, seconds=5)
        assert (await asyncio.wait_for(reader.read(12), 20)) == b"HTTP/1.1 200"
        writer.transport.abort()


@pytest.mark.parametrize(("pace", "ended"), [(0, False), (4096, True)])
async def test_slow_reader_gives_way_when_a_pace_is_asked(pace: int, ended: bool) -> None:
    async def large(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("x" * (20 << 20))(scope, receive, send)

    async with listening(large) as (guards, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(GET)
        await until(lambda: bool(guards) and guards[0].transport.get_write_buffer_size() > 0)
        look(guards[0], pace=pace)
        assert guards[0].transport.is_closing() == ended
        writer.transport.abort()


@pytest.mark.parametrize("count", [MAX_HEADERS - 2, MAX_HEADERS + 1])
async def test_number_of_headers_is_limited(count: int) -> None:
    headers = b"".join(b"X-%d: y\r\n" % number for number in range(count))
    response = await answered(echo, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + headers + b"Connection: close\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 200 " if count < MAX_HEADERS else b"HTTP/1.1 431 ")


@pytest.mark.parametrize("size", [1000, 20_000_000])
@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_refusal_arrives_after_whole_body(size: int, connection: str) -> None:
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\nContent-Length: {size}\r\n\r\n".encode()
    response = await answered(refusing, head, b"x" * size, LAST if connection == "keep-alive" else b"")
    assert response.count(b"HTTP/1.1 413 ") == (2 if connection == "keep-alive" else 1)


@pytest.mark.parametrize("count", [MAX_PIPELINED, MAX_PIPELINED + 1, 10_000])
async def test_pipelined_requests_are_limited(count: int) -> None:
    calls: list[int] = []

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        calls.append(1)
        await echo(scope, receive, send)

    responses = b""
    with suppress(ConnectionError):
        responses = await answered(counted, GET * (count - 1) + LAST)
    allowed = count <= MAX_PIPELINED
    assert responses.count(b"HTTP/1.1 200 ") == len(calls) == (MAX_PIPELINED if allowed else 0)


async def test_sequential_requests_are_unlimited() -> None:
    async with listening(echo) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(5 * MAX_PIPELINED):
            writer.write(GET)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(1) == b"0"
        writer.transport.abort()


async def test_trailers_are_dropped() -> None:
    trailers = b"X-Forwarded-For: 1.2.3.4\r\nAuthorization: Bearer x\r\n\r\n"
    response = await answered(reflect, CHUNKED + trailers, LAST)
    assert b"POST host transfer-encoding abc" in response
    assert response.endswith(b"GET host connection ")


@pytest.mark.parametrize("size", [10, 100_000])
async def test_upgrade_is_ignored(size: int) -> None:
    """Java's HttpClient asks for one with each request."""
    java = (
        b"POST /v1/policy HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: %d\r\nHost: localhost\r\n"
        b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\nContent-Type: x\r\n\r\n"
    ) % size
    response = await answered(echo, java[:50], java[50:] + b"x" * size + java + b"x" * size + LAST)
    assert response.count(b"HTTP/1.1 200 ") == 3
    assert response.count(b"\r\n\r\n%d" % size) == 2


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n", b"400"),
        (b"GET / HTTP/1.0\r\n", b"200"),
        (b"CONNECT h:80 HTTP/1.1\r\nHost: localhost\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", b"200"),
    ],
)
async def test_host_header_is_required_once(head: bytes, status: bytes) -> None:
    response = await answered(echo, head + b"\r\n")
    assert response.startswith(b"HTTP/1.1 " + status)
    assert response.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /\r\n\r\n", b"505"),
        (b"GET / HTTP/0.9\r\nHost: localhost\r\n\r\n", b"505"),
        (b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", b"505"),
        (b"GET / HTTP/1.0\r\nConnection: close\r\n\r\n", b"200"),
        (b"GET / HTTP/1.7\r\nHost: localhost\r\n\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        *(
            (b"POST / HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n3\r\nabc\r\n0\r\n\r\n" % coding, b"501")
            for coding in (
                b"Transfer-Encoding: gzip, chunked",
                b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
                b"transfer-encoding: identity, chunked",
            )
        ),
    ],
)
async def test_other_versions_and_codings_are_rejected(raw: bytes, status: bytes) -> None:
    assert (await answered(echo, raw)).split(b" ")[1] == status


async def test_invalid_requests_share_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """A thousand of them wrote 740 MB."""
    async with listening(echo) as (guards, port):
        for _ in range(100):
            assert (await sent(port, b"\0\0\0")).startswith(b"HTTP/1.1 400 ")
        while guards[0].guards.refused:
            await asyncio.sleep(0.01)
    counts = [int(line.partition(" ")[0]) for line in caplog.messages if line.endswith("the request is not HTTP/1.1")]
    assert sum(counts) == 100
    assert len(counts) < 50


@pytest.mark.parametrize(
    ("raw", "metric", "line"),
    [
        (b"", 'rejected_total{reason="overloaded"}', "too many connections from this address; each worker takes 1"),
        (b"GET / HT", 'invalid_total{problem="request-timeout"}', "the request did not arrive in time"),
        (HEAD, 'invalid_total{problem="request-timeout"}', "the request did not arrive in time"),
        (
            b"GET /" + b"x" * 70_000,
            'invalid_total{problem="request-header-fields-too-large"}',
            "the request has more than 65536 bytes or 100 headers beside its body",
        ),
        (b"GET / HTTP/1.1\r\n\r\n", 'invalid_total{problem="bad-request"}', "the request needs one Host header"),
    ],
)
async def test_refused_connections_are_logged_and_counted(
    caplog: pytest.LogCaptureFixture, raw: bytes, metric: str, line: str
) -> None:
    """Without MOVEMASK_PROXIES, all clients behind a proxy are one address."""
    metrics, most = Metrics(), 2 if raw else 1
    limits: dict[str, Any] = {"of_an_address": most, "head_seconds": 0.2 if raw else 10, "body_seconds": 0.2}
    async with listening(echo, count=metrics.problem, **limits) as (guards, port), asyncio.timeout(20):
        _, other = await asyncio.open_connection("127.0.0.1", port)
        assert b"application/problem+json" in await sent(port, raw)
        while guards[0].guards.refused:
            await asyncio.sleep(0.01)
        other.transport.abort()
    assert f"movemask_{metric} 1.0" in metrics.exposition().decode()
    assert f"1 refused: {line}" in caplog.messages


HANDSHAKE = bytes.fromhex("16030100") + b"\x2f" + b"\x01" + bytes(46)


@pytest.mark.parametrize(
    ("raw", "status", "detail"),
    [
        (b"get / http/1.1\n\n", 400, "the request is not HTTP/1.1"),
        (
            b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
            400,
            "the request is not HTTP/1.1",
        ),  # uvicorn logged each
        (HANDSHAKE, 400, "the client speaks TLS, and this port plain HTTP; ask for http://, or set MOVEMASK_TLS_CERT"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "the request needs one Host header"),
    ],
)
async def test_early_refusal_is_a_problem(
    caplog: pytest.LogCaptureFixture, raw: bytes, status: int, detail: str
) -> None:
    head, _, body = (await answered(echo, raw)).partition(b"\r\n\r\n")
    assert b"\r\ncontent-type: application/problem+json" in head.lower()
    problem = json.loads(body)
    assert (problem["status"], problem["detail"]) == (status, detail)
    assert "uvicorn" not in "".join(record.name for record in caplog.records)


@pytest.mark.parametrize("after", [b"\0\0\0", b"GET / HTTP/1.1\r\n\r\n"])
async def test_later_bytes_do_not_cut_answer(after: bytes) -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        await echo(scope, receive, send)

    response = await answered(slow, HEAD + b"\r\n1234567890" + after)
    assert response.startswith(b"HTTP/1.1 200 ")
    assert response.endswith(b"\r\n\r\n10")
    assert b"connection: close" in response


@pytest.mark.parametrize(("path", "length"), [("/v1/policy", 400_000), ("/v1/nothing", 10)])
def test_expect_100_continue_refused(service: int, path: str, length: int) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
    with socket.create_connection(("127.0.0.1", service), 20) as client:
        client.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode())
        response = b"".join(iter(lambda: client.recv(65_536), b""))
    assert response.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 404 "))
    assert b"connection: close" in response


async def test_streamed_head_is_sent_at_once() -> None:
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


@pytest.mark.parametrize("inner", [HttpToolsProtocol, H11Protocol])
async def test_guard_works_with_h11_protocol(inner: Any) -> None:
    """With both of uvicorn's protocols, answers are found: else a connection ends with its ninth request, a client
    that goes is not seen, and what follows a request cuts its answer off."""
    waiting = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/slow":
            await echo(scope, receive, send)
            return

        async def never() -> None:
            waiting.set()
            await asyncio.Event().wait()

        try:
            await while_connected(scope, never())
        except ClientDisconnect:
            waiting.clear()

    async with listening(app, inner=inner) as (_, port):
        assert (await sent(port, GET * (MAX_PIPELINED - 1) + LAST)).count(b"HTTP/1.1 200 ") == MAX_PIPELINED
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2 * MAX_PIPELINED):
            writer.write(HEAD + b"\r\n1234567890")
            assert (await reader.readuntil(b"\r\n\r\n10")).startswith(b"HTTP/1.1 200 ")
        writer.write(GET.replace(b"/", b"/slow", 1))
        await asyncio.wait_for(waiting.wait(), 20)
        writer.close()
        while waiting.is_set():
            await asyncio.sleep(0)
        response = await sent(port, HEAD + b"\r\n1234567890" + b"\0\0\0")
        assert response.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in response.lower()


@hypothesis.given(
    bodies=strategies.lists(strategies.binary(max_size=200), min_size=1, max_size=4),
    chunks=strategies.integers(0, 3),
    cuts=strategies.lists(strategies.integers(0, 2000), max_size=8),
)
def test_requests_survive_any_fragmentation(bodies: list[bytes], chunks: int, cuts: list[int]) -> None:
    raw = b""
    for number, body in enumerate(bodies):
        last = b"Connection: close\r\n" if number == len(bodies) - 1 else b""
        raw += b"POST /%d?a=b%%20c HTTP/1.1\r\nHost: localhost\r\nX-Twice:  a\r\nx-twice: b\r\n%s" % (number, last)
        if chunks:
            raw += b"Transfer-Encoding: chunked\r\n\r\n"
            size = -(-len(body) // chunks)
            pieces = [body[at : at + size] for at in range(0, len(body), size)] if body else []
            raw += b"".join(b"%x;a=b\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nX: y\r\n\r\n"
        else:
            raw += b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    places = sorted({cut % len(raw) for cut in cuts})
    parts = [raw[start:end] for start, end in pairwise([0, *places, len(raw)])]
    requests: list[tuple[str, bytes, list[bytes], bytes]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        twice = [value for name, value in scope["headers"] if name == b"x-twice"]
        requests.append((scope["path"], scope["query_string"], twice, await body_of(receive)))
        await PlainTextResponse("")(scope, receive, send)

    async def trial() -> None:
        async with listening(app) as (_, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0)
            while len(requests) < len(bodies):
                await asyncio.sleep(0)
            writer.transport.abort()

    asyncio.run(trial())
    assert requests == [(f"/{number}", b"a=b%20c", [b"a", b"b"], body) for number, body in enumerate(bodies)]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"connections": 4}, b'"detail":"too many connections"'),
        ({"of_an_address": 4}, b"too many connections from this address; each worker takes 2"),
    ],
)
async def test_workers_share_connection_limit(limits: dict[str, Any], words: bytes) -> None:
    async with listening(echo, processes=2, **limits) as (guards, port):
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(2)]
        while len(guards) < 2:
            await asyncio.sleep(0)
        response = await sent(port)
        assert b"503 Service Unavailable" in response
        assert words in response
        for writer in writers:
            writer.transport.abort()
        while any(item.client for item in guards):
            await asyncio.sleep(0)
        assert (await sent(port, LAST)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_ipv6_network_is_one_client(address: str, client: str) -> None:
    assert client_address(address) == client


@pytest.mark.parametrize("sent_before", [b"", b"GET / HT", HEAD + b"\r\n123", GET])
async def test_stopped_connection_finishes_requests(sent_before: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_ON_ITS_WAY", 0)
    rest = (HEAD + b"\r\n1234567890" if sent_before.startswith(HEAD) else GET).removeprefix(sent_before)
    async with listening(echo) as (guards, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent_before)
        await writer.drain()
        if sent_before == GET:
            await reader.readuntil(b"\r\n\r\n0")
        while not guards or not (guards[0]._requests.begun or sent_before in (b"", GET)):
            await asyncio.sleep(0)
        guards[0].stop()
        for _ in range(3):  # the connection would be ended by now
            await asyncio.sleep(0)
        writer.write(rest)
        response = await asyncio.wait_for(reader.read(), 20)
        assert response.startswith(b"HTTP/1.1 200 ") == (sent_before not in (b"", GET))
        assert (b"connection: close" in response) == bool(response)
        writer.transport.abort()


async def test_reset_connection_leaves_nothing() -> None:
    """uvicorn's timer of an idle connection held all of it until its time was over: many resets a second filled
    memory."""
    async with listening(echo, keep_alive=3600) as (guards, port), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n0")
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        protocol = weakref.ref(guards[0]._inner)
        while protocol() is not None or len(guards[0]._buffer):
            await asyncio.sleep(0)
            gc.collect()
