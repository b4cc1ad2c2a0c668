"""uvicorn's HTTP connections, for clients that are slow, broken or greedy."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import is_ssl

from movemask.api import overload
from movemask.api.doors import Doors, gone
from movemask.api.turns import turns_of

#: Bytes of a request's line and headers, and number of headers.
MAX_HEAD = 65_536
MAX_HEADERS = 100

#: Bytes of a body that are read and thrown away after it has been refused, so that the client, which is still sending,
#: comes to reading why.
_DISCARDED = 64 << 20

#: Seconds after which a half-closed client that had closed both sides is known to be gone.
_PROBED = 0.05


class Connection(HttpToolsProtocol):
    """Turns Nagle's algorithm off; limits heads, and the time for heads, bodies and reading; answers clients that have
    closed their sending side.

    asyncio turns Nagle's algorithm off for the sockets it makes, but not for one that uvicorn shares among worker
    processes: there a body waited 40 ms for the client to acknowledge the head of its answer. httptools itself has no
    limit on heads, and uvicorn none on time.
    """

    def __init__(self, *arguments: Any, doors: Doors | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._doors = doors or Doors()
        self.address = ""
        self.until: float | None = None
        self.half_closed = False
        self.unsent, self.stuck_since = 0, 0.0
        self._in_head, self._head = False, 0  # whether a head is under way, and its bytes that came in later reads
        self._fields = 0  # bytes of the line and headers parsed
        self._discarded = 0
        self._refused = False
        self._skipping = False  # the body of a request that has been refused
        self._between = True  # no request is under way
        self._turns = turns_of(self.loop)
        self._descriptor = -1

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        opened = transport.get_extra_info("socket")
        if opened is not None and opened.family in (socket.AF_INET, socket.AF_INET6):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._descriptor = -1 if opened is None else opened.fileno()
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._wait(self._doors.limits.head_seconds)
        reason = self._doors.enter(self)
        if reason is not None:
            self._refuse("503 Service Unavailable", reason, "retry-after: 1")

    def connection_lost(self, exc: Exception | None) -> None:
        self._doors.leave(self)
        if self._turns is not None:
            self._turns.taken(self._descriptor)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._idle and self._doors.full() and self._answer_unparsed(data):
            return
        went_on = self._in_head
        super().data_received(data)
        if went_on and self._in_head:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self._refuse_head()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keeps the connection for the answer of a request that has been sent whole.

        A client that has closed both sides looks the same until it is written to, so it is sent an interim response,
        which says nothing; it ends the connection of a client that has gone, and with it the work for it.
        """
        cycle = self.cycle
        waits = cycle is not None and not cycle.response_complete and not cycle.more_body
        if not waits or self._refused or is_ssl(self.transport):
            return None
        cycle.keep_alive = False
        self.half_closed = True
        if not cycle.response_started and self.scope["http_version"] == "1.1":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.loop.call_later(_PROBED, self._end_if_gone)
        return True

    def on_message_begin(self) -> None:
        self._between, self._in_head, self._head, self._fields = False, True, 0, 0
        self._wait(self._doors.limits.head_seconds)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._fields += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += len(name) + len(value) + 4
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._refused:
            return
        if self._fields > MAX_HEAD or len(self.headers) > MAX_HEADERS:
            self._refuse_head()
            return
        self._wait(self._doors.limits.body_seconds)
        self._discarded = 0
        if self._doors.full() and self._refuse_load():
            return
        if self._turns is not None:
            self._turns.taken(self._descriptor)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._refused or self._skipping:
            return
        super().on_body(body)
        if self.cycle is not None and self.cycle.response_complete:
            self._discarded += len(body)
            if self._discarded > _DISCARDED:
                self.transport.close()

    def on_message_complete(self) -> None:
        if self._refused:
            return
        self._between = True
        if self._skipping:
            self._skipping = False
            self._wait(self.timeout_keep_alive)
            return
        self.until = None
        super().on_message_complete()

    def too_slow(self) -> None:
        """Answers 408 if part of a request has come, and closes."""
        cycle = self.cycle
        if self._in_head or (cycle is not None and cycle.more_body and not cycle.response_started):
            self._refuse("408 Request Timeout", "The request did not arrive in time.")
        else:
            self.transport.close()

    @property
    def _idle(self) -> bool:
        """Whether the next byte begins a request, and the last has been answered."""
        return self._between and (self.cycle is None or self.cycle.response_complete)

    def _answer_unparsed(self, data: bytes) -> bool:
        """Refuses a plain request at a third of the cost, and answers `GET /livez` without a task that would wait for
        its turns; False for any other."""
        if overload.is_plain_request(data):
            self._send_refusal(overload.answer())
        elif overload.is_plain_livez(data):
            always = (name + b": " + value + b"\r\n" for name, value in self.server_state.default_headers)
            self.transport.write(b"HTTP/1.1 200 OK\r\n" + b"".join(always) + overload.alive(self.scheme or "http"))
        else:
            return False
        self._unset_keepalive_if_required()
        self._wait(self.timeout_keep_alive)  # `Doors` ends it, which costs less than a timer for each
        return True

    def _refuse_load(self) -> bool:
        """Answers 503 without a task for the request, and keeps the connection; False for a request that must be
        answered, or that comes while another is."""
        free = self.cycle is None or self.cycle.response_complete
        if not free or self.parser.should_upgrade() or overload.is_probe(self.url):
            return False
        keep = self.parser.should_keep_alive() and not self.expect_100_continue
        self._skipping = True
        self._send_refusal(overload.answer(keep=keep, head=self.parser.get_method() == b"HEAD"))
        if not keep:
            self.transport.close()
        return True

    def _send_refusal(self, answer: bytes) -> None:
        self._doors.count_refusal()
        if self._turns is not None:
            self._turns.refused(self._descriptor)
        self.transport.write(answer)

    def _wait(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds

    def _end_if_gone(self) -> None:
        if gone(self.transport):
            self.transport.abort()

    def _refuse_head(self) -> None:
        limit = f"{MAX_HEAD} bytes or {MAX_HEADERS} headers"
        self._refuse("431 Request Header Fields Too Large", f"The request has more than {limit} before its body.")

    def _refuse(self, status: str, reason: str, *headers: str) -> None:
        """Answers without the app, and closes; what still comes is ignored."""
        self._refused = True
        self.until = None
        text = f"{reason}\n"
        lines = (
            f"HTTP/1.1 {status}",
            "content-type: text/plain; charset=utf-8",
            f"content-length: {len(text)}",
            "x-content-type-options: nosniff",
            "connection: close",
            *headers,
        )
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write("\r\n".join([*lines, "", text]).encode())
        self.transport.close()
