"""`Guard`: a protocol between a connection's transport and uvicorn's protocol, which bounds what a client may take.

The guard parses what the client sends with httptools and writes each accepted request anew for uvicorn: heads within
limits, bodies, no trailers, no upgrades, nothing that follows a fault. It knows from the ASGI side, `GuardedApp`, when
an answer begins and ends. Of uvicorn it needs what asyncio documents: a protocol that is given a transport.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, cast

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from movemask.api.context import DISCONNECTION, Disconnection
from movemask.serving.tally import CLIENT_CONNECTIONS, CONNECTIONS, Tally, client_address
from movemask.settings import Settings

log = logging.getLogger(__name__)

#: Bytes of a request's line and headers, or of its trailers, and number of headers.
MAX_HEAD = 65_536
MAX_HEADERS = 100

#: Requests of a connection that are not answered yet. One more ends the connection.
MAX_PIPELINED = 8

#: Bytes that are read from a connection at once.
_READ = 65_536

#: Bytes of a refused body that are read and thrown away: a client that is still sending does not read why.
_DISCARDED = 64 << 20

_SWEEP_SECONDS = 0.5

#: Seconds that a connection without a request stays open when the service stops, for a request that is on its way.
_ON_ITS_WAY = 0.2

#: Seconds that a client whose body is complete is listened to after the last answer.
_LISTENING = 5.0

#: Bytes a second that a client must read of an answer to count as reading.
_READING = 1024

#: The guard of the connection whose request is being handled. uvicorn starts a request's task while the guard hands it
#: the request, or at the end of the connection's previous request, so the task has the guard in its context.
_GUARD: ContextVar[Guard] = ContextVar("guard")


class _Refused(Exception):
    """Ends the parsing of what a connection has sent."""


class Guard(asyncio.BufferedProtocol):
    """Bounds one connection: its heads, trailers and pipelined requests, and the time for heads, bodies and reading.

    Parameters
    ----------
    make_inner : makes uvicorn's protocol
    guards : the process's connections
    """

    def __init__(self, make_inner: Callable[[], asyncio.Protocol], guards: Guards) -> None:
        self._make_inner, self.guards = make_inner, guards
        self._inner: asyncio.Protocol | None = None  # None if the guard alone speaks to the client
        self._parser = httptools.HttpRequestParser(self)
        self._buffer = memoryview(b"")
        self.client = ""  # whose connection it is, if it is counted
        self.disconnection = Disconnection()
        self.until: float | None = None  # when the client must have sent what it is sending, by time.monotonic

        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._without_upgrade = b""  # the head of a request that asks for another protocol, without that
        self._in_head = self._in_body = self._chunked = False
        self._pending = 0  # bytes since a head or a piece of a body was complete
        self._accepted: list[bytes] = []  # what uvicorn gets of the bytes that are being parsed
        self._refusal: tuple[str, str] | None = None

        self._unanswered = 0  # requests that uvicorn was given and whose answer is not complete
        self._started = False  # whether the answer to the last of them has begun
        self._last = False  # whether the connection ends when all are answered
        self._ended = False  # whether the last answer is complete, and the client is only listened to
        self._deaf = False  # whether what the client sends is thrown away
        self._discarded = 0
        self._hold_next = False  # whether the next write is the head of an answer
        self._held = b""  # a head whose body may follow at once
        self.unread, self.unread_since = 0, 0.0  # bytes that the client had not read at the last look
        self.was_closing = False  # at the last look

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._wait(self.guards.settings.head_seconds)
        refusal = self.guards.enter(self)
        if refusal is not None:
            self._refuse("503 Service Unavailable", refusal, "retry-after: 1")
            return
        self._inner = self._make_inner()
        self._inner.connection_made(cast(asyncio.Transport, _Transport(self)))

    def connection_lost(self, exc: Exception | None) -> None:
        self.guards.leave(self)
        # Timers that were cancelled may keep this object a while: it keeps nothing large.
        inner, self._inner, self._buffer, self._accepted = self._inner, None, memoryview(b""), []
        if inner is not None:
            inner.connection_lost(None)  # after an error uvicorn would not cancel its timer of an idle connection
        self.disconnection.happen()

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        self._buffer = memoryview(bytearray(_READ))  # only until it is parsed: idle connections hold none
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data, self._buffer = self._buffer[:nbytes], memoryview(b"")
        if self._deaf:
            self._discard(nbytes)
            return
        self._pending += nbytes
        try:
            self._parse(data)
        except httptools.HttpParserError:
            if self._refusal is None and not self._deaf:
                self.guards.invalid += 1
                self._refusal = "400 Bad Request", "Invalid HTTP request received."
        if self._pending > MAX_HEAD and self._refusal is None and not self._deaf:
            self._refuse_head()
        if self._accepted:
            accepted, self._accepted = b"".join(self._accepted), []
            if self._inner is not None and not self._deaf:
                _GUARD.set(self)
                self._inner.data_received(accepted)
        if self._refusal is not None:
            self._refuse(*self._refusal)

    # What the parser finds

    def _parse(self, data: memoryview | bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # The parser takes the rest for another protocol's: a new one reads the request without `Upgrade`.
                data = self._without_upgrade + bytes(data[upgrade.args[0] :])
                self._parser = httptools.HttpRequestParser(self)

    def on_message_begin(self) -> None:
        if self._unanswered == MAX_PIPELINED:
            self._deaf, self.until = True, None
            self.transport.close()
            raise _Refused
        self._in_head, self._url, self._headers = True, b"", []
        self._wait(self.guards.settings.head_seconds)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:  # a trailer is no header
            return
        self._headers.append((name.lower(), value))
        if len(self._headers) > MAX_HEADERS:
            self._refuse_head()
            raise _Refused

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade():
            kept = [(name, value) for name, value in self._headers if name != b"upgrade"]
            if len(kept) == len(self._headers):
                raise httptools.HttpParserError("CONNECT")
            self._without_upgrade = self._head(kept)
            return  # `_parse` begins again with it
        head, version = self._head(self._headers), self._parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self._headers)
        codings = [value.lower() for name, value in self._headers if name == b"transfer-encoding"]
        if len(head) > MAX_HEAD:
            self._refuse_head()
        elif version not in ("1.0", "1.1"):
            self._refusal = "505 HTTP Version Not Supported", "The service speaks HTTP/1.1."
        elif hosts > 1 or (not hosts and version == "1.1"):
            self._refusal = "400 Bad Request", "The request needs one Host header."
        elif codings not in ([], [b"chunked"]):  # the parser would hand on what another coding made
            self._refusal = "501 Not Implemented", "Of transfer codings, the service knows chunked alone."
        if self._refusal is not None:
            raise _Refused
        self._accepted.append(head)
        self._pending, self._discarded = 0, 0
        self._in_head, self._in_body, self._chunked = False, True, bool(codings)
        self._unanswered += 1
        self._started = False
        self._wait(self.guards.settings.body_seconds)

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        self._accepted += [b"%x\r\n" % len(body), body, b"\r\n"] if self._chunked else [body]
        if not self._unanswered:  # it has been refused, and uvicorn throws the rest away
            self._discard(len(body))

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        if self._chunked:
            self._accepted.append(b"0\r\n\r\n")
        self._in_body, self._pending, self.until = False, 0, None

    def _head(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        version = self._parser.get_http_version().encode()
        first = b"%s %s HTTP/%s\r\n" % (self._parser.get_method(), self._url, version)
        return first + b"".join([b"%s: %s\r\n" % header for header in headers]) + b"\r\n"

    # What becomes of the answers

    def answer_begins(self) -> bool:
        """Notes that an answer begins; whether it is the connection's last."""
        self._hold_next, self._started = True, self._unanswered == 1
        return self._last and self._unanswered == 1 and not self._in_head

    def answer_ends(self) -> None:
        """Notes that an answer is complete, or that there will be none."""
        self._unanswered -= 1
        if self._last and not self._unanswered and not self._in_head:
            self.end()

    def write(self, data: bytes) -> None:
        """Writes a part of an answer: its head together with its body, if that is there, as one packet."""
        if self._hold_next:
            self._hold_next, self._held = False, data
            asyncio.get_running_loop().call_soon(self._flush)
            return
        if self._held:
            data, self._held = self._held + data, b""
        self.transport.write(data)

    def _flush(self) -> None:
        if self._held:
            self.transport.write(self._held)
            self._held = b""

    def close(self) -> None:
        """What uvicorn's `transport.close()` does: after the last answer ends the connection; between answers, when it
        has been idle or the service stops, waits for a request that is on its way."""
        if self._inner is None:
            return
        if self._unanswered:
            self.end()
        else:
            self.stop()

    @property
    def is_closing(self) -> bool:
        """Whether uvicorn can write no more."""
        return self._ended or self.transport.is_closing()

    def end(self) -> None:
        """Ends the connection. A client that may still be sending is listened to for a while, at most until its time
        for the body is over: a reset would take the answer from it."""
        self._flush()
        self._ended = True
        if self.transport.is_closing():
            return
        if not (self._in_body or self._deaf):
            self.transport.close()
            return
        if self.until is None:
            self._wait(_LISTENING)
        self._deaf = True
        self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def stop(self) -> None:
        """Ends the connection when the requests that have begun are answered, as the service stops."""
        if not self._last:
            self._last = True
            asyncio.get_running_loop().call_later(_ON_ITS_WAY, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if not (self._unanswered or self._in_head):
            self.end()

    def too_slow(self) -> None:
        """Answers 408 if part of a request has come and no answer, and closes."""
        self.until = None
        if not self._deaf and (self._in_head or (self._in_body and self._unanswered and not self._started)):
            self._refuse("408 Request Timeout", "The request did not arrive in time.")
        elif not self.transport.is_closing():
            self.transport.close()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > _DISCARDED and not self.transport.is_closing():
            self.transport.close()

    def _wait(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds

    def _refuse_head(self) -> None:
        limit = f"{MAX_HEAD} bytes or {MAX_HEADERS} headers"
        self._refusal = "431 Request Header Fields Too Large", f"The request has more than {limit} beside its body."

    def _refuse(self, status: str, reason: str, *headers: str) -> None:
        """Answers without the app, and closes. Where an earlier answer is under way, that is the last; where the answer
        to this request has begun, it is cut off."""
        self._deaf, self._in_head, self.until = True, False, None
        if self._unanswered and not self._in_body:
            self._last = True
            return
        if not self._in_body or (self._unanswered == 1 and not self._started):
            if self._inner is not None:  # the app waits for the body: to it, the client has gone
                inner, self._inner = self._inner, None
                inner.connection_lost(None)
                self.disconnection.happen()
            text = f"{reason}\n"
            lines = (
                f"HTTP/1.1 {status}",
                "content-type: text/plain; charset=utf-8",
                f"content-length: {len(text)}",
                "x-content-type-options: nosniff",
                "connection: close",
                *headers,
            )
            self.transport.write("\r\n".join([*lines, "", text]).encode())
        self._flush()
        self.transport.close()


class _Transport:
    """The transport as uvicorn's protocol sees it: writing and closing go through the guard."""

    def __init__(self, guard: Guard) -> None:
        self.write, self.close = guard.write, guard.close
        self._guard = guard

    def is_closing(self) -> bool:
        return self._guard.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._guard.transport, name)


class GuardedApp:
    """ASGI app that tells a connection's guard when its answers begin and end. Under another server it does nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guard = _GUARD.get(None)
        if guard is None or scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        ended = False

        async def send_observed(message: Message) -> None:
            nonlocal ended
            if message["type"] == "http.response.start":
                if guard.answer_begins():
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
                await send(message)
                return
            await send(message)
            if not message.get("more_body", False) and not ended:
                ended = True
                guard.answer_ends()

        scope[DISCONNECTION] = guard.disconnection
        try:
            await self._app(scope, receive, send_observed)
        finally:
            if not ended:
                guard.answer_ends()


class Guards:
    """The connections of a process: counts them, and looks at each twice a second. Used by one event loop.

    Parameters
    ----------
    settings : the limits of connections, and the time that each may take
    tally : where connections are counted, for all processes of the service
    looked : called with the number of connections, twice a second
    stopping : whether the service is about to end, and connections with it
    """

    def __init__(
        self,
        settings: Settings,
        tally: Tally,
        looked: Callable[[int], None] = lambda connections: None,
        stopping: Callable[[], bool] = lambda: False,
        inner: Callable[..., asyncio.Protocol] = HttpToolsProtocol,
    ) -> None:
        self.settings, self._tally = settings, tally
        self._looked, self._stopping, self._inner = looked, stopping, inner
        self._open: set[Guard] = set()
        self.invalid = 0  # requests since the last look

    def protocol(self, **options: Any) -> Guard:
        """The protocol of a new connection; the options are those that uvicorn gives its own."""
        return Guard(lambda: self._inner(**options), self)

    def enter(self, guard: Guard) -> str | None:
        """Counts a connection; why it may not stay, if there are too many."""
        self._open.add(guard)
        peer = guard.transport.get_extra_info("peername")
        client = client_address(peer[0]) if isinstance(peer, tuple) else ""
        limit = self.settings.max_connections_per_address
        if self._tally.total(CONNECTIONS) >= self.settings.max_connections:
            return "too many connections"
        limited = bool(client) and not self.settings.proxies
        if limited and self._tally.total(self._tally.client(client) + CLIENT_CONNECTIONS) >= limit:
            return f"too many connections from this address (limit {limit})"
        guard.client = client or "-"
        self._count(guard, 1)
        return None

    def leave(self, guard: Guard) -> None:
        """Takes a connection out of the count."""
        self._open.discard(guard)
        if guard.client:
            self._count(guard, -1)
            guard.client = ""

    def _count(self, guard: Guard, change: int) -> None:
        self._tally.add(CONNECTIONS, change)
        self._tally.add(self._tally.client(guard.client) + CLIENT_CONNECTIONS, change)

    async def watch(self) -> None:
        """Ends connections whose time is over, until cancelled."""
        while True:
            now = time.monotonic()
            try:
                self._looked(len(self._open))
            except Exception:  # a bug, or no descriptors are left; the connections are looked at
                log.exception("the process cannot be looked at")
            if self.invalid:
                log.warning("invalid HTTP requests refused: %d", self.invalid)
                self.invalid = 0
            for guard in list(self._open):
                try:
                    self._look(guard, now)
                except Exception:  # a bug; the others are looked at
                    log.exception("a connection cannot be checked")
                    self.leave(guard)
            await asyncio.sleep(_SWEEP_SECONDS)

    def close(self) -> None:
        """Cuts off the connections that are left."""
        for guard in list(self._open):
            guard.transport.abort()

    def _look(self, guard: Guard, now: float) -> None:
        transport = guard.transport
        if self._stopping():
            guard.stop()
        if guard.until is not None and now > guard.until:
            guard.too_slow()
            return
        unread = transport.get_write_buffer_size()
        if guard.was_closing and not unread:  # TLS would wait half a minute for the client to close, too
            transport.abort()
            return
        guard.was_closing = transport.is_closing()
        if not unread or unread <= guard.unread - _READING * _SWEEP_SECONDS or not guard.unread:
            guard.unread_since = now
        elif now - guard.unread_since > self.settings.read_seconds:
            transport.abort()
        guard.unread = unread
