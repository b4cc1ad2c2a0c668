"""HTTP connections that bound what slow, broken and greedy clients may take, and the tracker that counts them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from movemask.api.context import DISCONNECTION, Disconnection
from movemask.settings import Settings

log = logging.getLogger(__name__)

#: Bytes of a request's line and headers, or of its trailers, and number of headers.
MAX_HEAD = 65_536
MAX_HEADERS = 100

#: Requests of one connection that are under way; with another one it ends, and what waited in it is not answered.
MAX_PIPELINED = 8

#: Bytes that are read from a connection at once; asyncio's own default is four times as much.
_READ = 65_536

#: Bytes of a body that are read and thrown away after it has been refused: a client that is still sending does not read
#: why.
_DISCARDED = 64 << 20

_SWEEP_SECONDS = 0.5

#: Seconds for which a connection without a request is kept when the service stops.
_ON_ITS_WAY = 0.2

#: Bytes a second that a client must read of an answer to count as reading.
_READING = 1024


class _Refused(Exception):
    """Ends the parsing of what a connection has sent."""


class Connection(HttpToolsProtocol):
    """Bounds heads, trailers and pipelining, and the time for heads, bodies and reading; ignores unwanted upgrades.

    httptools itself has no limit on heads, and takes trailers for headers; uvicorn has no limit on time.
    """

    def __init__(self, *arguments: Any, tracker: ConnectionTracker, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._tracker = tracker
        self.number = 0  # by which the supervisor knows it
        self.refused: str | None = None  # why it may not stay
        self.until: float | None = None  # when the client must have sent what it is sending, by time.monotonic
        self.unsent, self.stuck_since = 0, 0.0  # bytes that the client had not read at the last look
        self.closing = False  # at the last look
        self._disconnection = Disconnection()
        self._unwritten = b""  # the head of an answer whose body may follow at once
        self._in_head = self._in_body = False
        self._pending = 0  # bytes since a head or a piece of a body was complete
        self._discarded = 0
        self._deaf = False  # whether what still comes is thrown away
        self._stopping = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.max_size = _READ  # type: ignore[attr-defined]
        super().connection_made(transport)
        self.is_closing = transport.is_closing  # for answers, with `write` and `close`
        self._wait(self._tracker.settings.head_seconds)
        self._tracker.enter(self)
        if self.refused is not None:
            self._refuse("503 Service Unavailable", self.refused, "retry-after: 1")

    def connection_lost(self, exc: Exception | None) -> None:
        self._tracker.leave(self)
        super().connection_lost(exc)
        self._disconnection.happen()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._discard(len(data))
            return
        self._pending += len(data)
        try:
            self._parse(data)
            if self._pending > MAX_HEAD:
                self._refuse_head()
        except httptools.HttpParserError:
            if not self._deaf:
                self._tracker.invalid += 1
                self._refuse("400 Bad Request", "Invalid HTTP request received.")

    def on_message_begin(self) -> None:
        if len(self.pipeline) == MAX_PIPELINED - 1:
            self._deaf, self.until = True, None
            self.pipeline.clear()
            self.transport.close()
            raise _Refused
        self._unset_keepalive_if_required()
        self._in_head = True
        self._wait(self._tracker.settings.head_seconds)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:  # a trailer is no header
            return
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._refuse_head()
            raise _Refused

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # `_parse` begins again without
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD:
            self._refuse_head()
            raise _Refused
        self._pending = 0
        version = self.parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if version not in ("1.0", "1.1"):
            self._refuse("505 HTTP Version Not Supported", "The service speaks HTTP/1.1.")
        elif hosts > 1 or (not hosts and version == "1.1"):
            self._refuse("400 Bad Request", "The request needs one Host header.")
        elif codings not in ([], [b"chunked"]):  # the parser would hand on what another coding made
            self._refuse("501 Not Implemented", "Of transfer codings, the service knows chunked alone.")
        if self._deaf:
            raise _Refused
        self._wait(self._tracker.settings.body_seconds)
        self.scope[DISCONNECTION] = self._disconnection  # type: ignore[literal-required]
        super().on_headers_complete()
        self._in_head, self._in_body, self._discarded = False, True, 0
        self.cycle.transport = self  # type: ignore[assignment]
        if self._stopping:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)
        if self.cycle.response_complete:
            self._discard(len(body))

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_body, self._pending, self.until = False, 0, None
        super().on_message_complete()

    def write(self, data: bytes) -> None:
        """Writes part of an answer: its head together with its body if that is there, as one packet."""
        if self._unwritten:
            data, self._unwritten = self._unwritten + data, b""
        elif data.startswith(b"HTTP/"):
            self._unwritten = data
            self.loop.call_soon(self._flush)
            return
        self.transport.write(data)

    def _flush(self) -> None:
        if self._unwritten:
            self.transport.write(self._unwritten)
            self._unwritten = b""

    def close(self) -> None:
        """Closes once an answer is complete that was the last. A client that is still sending is listened to for a
        while: a reset would take the answer from it."""
        self._flush()
        self.pipeline.clear()
        if self.transport.is_closing():
            return
        if not (self._in_body or self._deaf):
            self.transport.close()
            return
        self._deaf = True
        if self.transport.can_write_eof():
            self.transport.write_eof()  # uvicorn's timer for connections that are kept closes it

    def shutdown(self) -> None:
        """Ends the connection after the requests that have been read, as uvicorn asks when the service stops. One that
        is on its way now is answered too."""
        if not self._stopping:
            self._stopping = True
            if self.cycle is not None:
                self.cycle.keep_alive = False
            self.loop.call_later(_ON_ITS_WAY, self._end_when_idle)

    def too_slow(self) -> None:
        """Answers 408 if part of a request has come, and closes."""
        waits = self._in_body and self.cycle.more_body and not self.cycle.response_started
        if not self._deaf and (self._in_head or waits):
            self._refuse("408 Request Timeout", "The request did not arrive in time.")
        elif not self.transport.is_closing():
            self.transport.close()

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                kept = [(name, value) for name, value in self.headers if name != b"upgrade"]
                if len(kept) == len(self.headers):
                    raise httptools.HttpParserError("CONNECT") from None
                # The parser takes the rest for another protocol's: another one reads the request without `Upgrade`.
                first = b"%s %s HTTP/1.1\r\n" % (self.parser.get_method(), self.url)
                head = first + b"".join(b"%s: %s\r\n" % pair for pair in kept) + b"\r\n"
                data = head + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)

    def _end_when_idle(self) -> None:
        answered = self.cycle is None or self.cycle.response_complete
        if answered and not self._in_head and not self.transport.is_closing():
            self.transport.close()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > _DISCARDED and not self.transport.is_closing():
            self.transport.close()

    def _wait(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds

    def _refuse_head(self) -> None:
        limit = f"{MAX_HEAD} bytes or {MAX_HEADERS} headers"
        self._refuse("431 Request Header Fields Too Large", f"The request has more than {limit} beside its body.")

    def _refuse(self, status: str, reason: str, *headers: str) -> None:
        """Answers without the app, and closes; what still comes is ignored."""
        self._flush()
        waiting = self.cycle is not None and not self.cycle.response_complete
        self._deaf, self.until = True, None
        if waiting and not self._in_body:  # what was asked before is answered
            self.cycle.keep_alive = False
            return
        if waiting:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not (waiting and (self.pipeline or self.cycle.response_started)):
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
        self.transport.close()


class ConnectionTracker:
    """Counts the connections of a process, and looks at each twice a second. Used by one event loop.

    Parameters
    ----------
    settings : the time that each may take
    looked : called with the number of connections, twice a second
    stopping : whether the service is about to end, and connections with it
    """

    def __init__(
        self,
        settings: Settings,
        looked: Callable[[int], None] = lambda connections: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.settings = settings
        self._looked, self._stopping = looked, stopping
        self._open: set[Connection] = set()
        self.on_leave: Callable[[Connection], None] = lambda connection: None
        self.invalid = 0  # requests since the last look

    def enter(self, connection: Connection) -> None:
        """Adds a connection."""
        self._open.add(connection)

    def leave(self, connection: Connection) -> None:
        """Removes a connection; `on_leave` is called with it."""
        if connection in self._open:
            self._open.remove(connection)
            self.on_leave(connection)

    async def watch(self) -> None:
        """Closes connections whose time is over, until cancelled."""
        while True:
            now = time.monotonic()
            self._looked(len(self._open))
            if self.invalid:
                log.warning("invalid HTTP requests refused: %d", self.invalid)
                self.invalid = 0
            for connection in list(self._open):
                try:
                    self._look(connection, now)
                except Exception:  # a bug; the others are looked at
                    log.exception("a connection cannot be checked")
                    self.leave(connection)
            await asyncio.sleep(_SWEEP_SECONDS)

    def close(self) -> None:
        """Cuts off the connections that are left."""
        for connection in list(self._open):
            connection.transport.abort()

    def _look(self, connection: Connection, now: float) -> None:
        if self._stopping():
            connection.shutdown()
        if connection.until is not None and now > connection.until:
            connection.until = None
            connection.too_slow()
            return
        unsent = connection.transport.get_write_buffer_size()
        if connection.closing and not unsent:  # TLS would wait half a minute for the client to close, too
            connection.transport.abort()
            return
        connection.closing = connection.transport.is_closing()
        if not unsent or unsent <= connection.unsent - _READING * _SWEEP_SECONDS or not connection.unsent:
            connection.stuck_since = now
        elif now - connection.stuck_since > self.settings.read_seconds:
            connection.transport.abort()
        connection.unsent = unsent
