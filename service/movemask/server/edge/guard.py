"""`Guard`: a protocol between a connection's transport and uvicorn's protocol, with limits for the client.

`RequestReader` says what uvicorn gets of the client's bytes, and `GuardedApp` tells the guard when an answer begins and
ends. Of uvicorn the guard needs only asyncio's documented interface of protocols and transports.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, NamedTuple, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from movemask.schemas.answers import Problem
from movemask.server.edge.context import DISCONNECTION, Disconnection
from movemask.server.edge.request_reader import Fault, RequestReader
from movemask.server.edge.shared_rates import client_address
from movemask.server.problems import name_of, problem, response

log = logging.getLogger(__name__)

#: Most unanswered requests of a connection. One more ends the connection.
MAX_PIPELINED = 8

#: Bytes of one read.
_READ = 65_536

#: Bytes of a refused body that are discarded: many clients read the answer only after they have sent all.
_DISCARDED = 64 << 20

_SWEEP_SECONDS = 0.5

#: Seconds that an idle connection stays open when the service stops: a request may be on its way.
_ON_ITS_WAY = 0.2

#: Seconds that a connection is read after its last answer. If a deadline for a body is running, that deadline counts.
_LISTENING = 5.0

#: Bytes per second that a client must read of its answers, at any time.
_READING = 1024

#: Seconds in which a client must keep the pace that the service asks for while much is in flight.
_PACE_SECONDS = 5.0

#: The guard of a request's connection. uvicorn starts the request's task while the guard passes the request on, or at
#: the end of the connection's previous request, so the task inherits the guard.
_GUARD: ContextVar[Guard] = ContextVar("guard")


class _Pace:
    """How fast a number of bytes grows, as far as it was looked at: a busy event loop is not the client's fault."""

    def __init__(self) -> None:
        self._size = self._looks = 0

    def restart(self, size: int) -> None:
        self._size, self._looks = size, 0

    def is_below(self, rate: float, seconds: float, size: int) -> bool:
        """Returns whether `size` has grown by less than `rate` a second in `seconds`.

        Called twice a second.
        """
        if size - self._size >= rate * seconds:
            self.restart(size)
            return False
        self._looks += 1
        return self._looks * _SWEEP_SECONDS > seconds


class Guard(asyncio.BufferedProtocol):
    """Limits one connection: sizes of heads and trailers, pipelined requests, and times for heads, bodies and reading.

    Parameters
    ----------
    make_inner : makes uvicorn's protocol
    guards : the process's connections
    """

    def __init__(self, make_inner: Callable[[], asyncio.Protocol], guards: Guards) -> None:
        self._make_inner, self.guards = make_inner, guards
        self._inner: asyncio.Protocol | None = (
            None  # uvicorn's protocol; None when the guard answers itself
        )
        self._requests = RequestReader()
        self._buffer = memoryview(b"")
        self.client = ""  # under which the connection is counted; empty: not counted
        self.disconnection = Disconnection()
        self._until: float | None = None  # deadline of the head or body, by time.monotonic
        self._unanswered = 0  # requests passed on whose answer is not complete
        self._started = False  # whether the answer to the latest of them has begun
        self._last = False  # whether the connection ends when all are answered
        self._ended = False  # whether the last answer is complete
        self._deaf = False  # whether everything from the client is discarded
        self._discarded = 0
        self._hold_next = False  # whether the next write is the head of an answer
        self._held = b""  # the head of an answer, until its body or the end of the turn
        self._received = self._written = 0  # bytes
        self._body_pace, self._reading_pace, self._long_reading_pace = _Pace(), _Pace(), _Pace()
        self._was_closing = False  # at the last look

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._wait(self.guards.limits.head_seconds)
        refusal = self.guards.enter(self)
        if refusal is not None:
            self._refuse(problem("overloaded", refusal, retry_after=1))
            return
        self._inner = self._make_inner()
        self._inner.connection_made(cast(asyncio.Transport, _Transport(self)))

    def connection_lost(self, exc: Exception | None) -> None:
        self.guards.leave(self)
        # Cancelled timers may keep this object for a while, so it keeps nothing large.
        inner, self._inner, self._buffer = self._inner, None, memoryview(b"")
        if inner is not None:
            # With an error, uvicorn would not cancel its timer of an idle connection.
            inner.connection_lost(None)
        self.disconnection.happen()

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        # Until it is parsed: idle connections hold none.
        self._buffer = memoryview(bytearray(_READ))
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data, self._buffer = self._buffer[:nbytes], memoryview(b"")
        self._received += nbytes
        requests = self._requests
        is_answered = requests.in_body and not self._unanswered  # nobody reads the body
        if self._deaf or is_answered:
            self._discard(nbytes)
        if self._deaf:
            return
        before = requests.begun, requests.accepted, requests.in_body
        accepted = requests.feed(data, MAX_PIPELINED - self._unanswered)
        if requests.too_many:
            self._deaf, self._until = True, None
            self.transport.close()
            return
        if before != (requests.begun, requests.accepted, requests.in_body):
            self._advance(requests.accepted - before[1])
        if accepted and self._inner is not None:
            _GUARD.set(self)
            self._inner.data_received(accepted)
        if requests.fault is not None:
            self._refuse(_problem_of(requests.fault))

    def _advance(self, accepted: int) -> None:
        """Counts newly accepted requests, and sets the deadline of the head or body that has begun."""
        limits = self.guards.limits
        if accepted:
            self._unanswered += accepted
            self._started, self._discarded = False, 0
        if self._requests.in_head:
            self._wait(limits.head_seconds)
        elif self._requests.in_body:
            self._wait(limits.body_seconds)
        else:
            self._until = None

    # Called by GuardedApp and by uvicorn's protocol

    def answer_begins(self) -> bool:
        """Notes that an answer begins; whether it is the connection's last."""
        self._hold_next, self._started = True, self._unanswered == 1
        return self._last and self._unanswered == 1 and not self._requests.in_head

    def answer_ends(self) -> None:
        """Notes that an answer is complete, or that there will be none."""
        self._unanswered -= 1
        if self._last and not self._unanswered and not self._requests.in_head:
            self.end()

    def write(self, data: bytes) -> None:
        """Writes a part of an answer. A head waits until the end of the turn for its body: one packet for both."""
        self._written += len(data)
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
        """Closes as uvicorn's `transport.close()` asks.

        During an answer, this ends the connection. Between answers, when the connection was idle or
        the service stops, it first waits for a request that is on its way.
        """
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
        """Ends the connection.

        If the client may still be sending, the connection is read for a while first: a reset would
        destroy the answer.
        """
        self._flush()
        self._ended = True
        if self.transport.is_closing():
            return
        if not (self._requests.in_body or self._deaf):
            self.transport.close()
            return
        if self._until is None:
            self._wait(_LISTENING)
        self._deaf = True
        self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def stop(self) -> None:
        """Ends the connection when all requests that have begun are answered."""
        if not self._last:
            self._last = True
            asyncio.get_running_loop().call_later(_ON_ITS_WAY, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if not (self._unanswered or self._requests.in_head):
            self.end()

    # Called twice a second

    def look(self, now: float, read_seconds: float, least_pace: int) -> None:
        """Ends the connection if the client is too slow.

        It is if it sends too slowly, or hardly reads its answers for `read_seconds`. While the
        service asks for a `least_pace`, in bytes per second, it also is if it sends a body or reads
        more slowly than that.
        """
        if self._until is not None and now > self._until:
            self._too_slow("the request did not arrive in time")
            return
        if not self._requests.in_body:
            self._body_pace.restart(self._received)
        elif self._body_pace.is_below(least_pace, _PACE_SECONDS, self._received):
            self._too_slow(
                f"the body arrives at less than {least_pace} bytes a second while many others are in flight"
            )
            return
        unread = self.transport.get_write_buffer_size()
        if self._was_closing and not unread:
            # TLS would wait half a minute for the client to close too.
            self.transport.abort()
            return
        self._was_closing = self.transport.is_closing()
        read = self._written - unread
        if not unread:
            self._reading_pace.restart(read)
            self._long_reading_pace.restart(read)
        elif self._reading_pace.is_below(
            least_pace, _PACE_SECONDS, read
        ) or self._long_reading_pace.is_below(_READING, read_seconds, read):
            self.transport.abort()

    def _too_slow(self, fault: str) -> None:
        """Closes the connection.

        Answers 408 if a part of a request has come and no part of its answer has been sent.
        """
        requests, self._until = self._requests, None
        if not self._deaf and (
            requests.in_head or (requests.in_body and self._unanswered and not self._started)
        ):
            self._refuse(_problem_of((HTTPStatus.REQUEST_TIMEOUT, fault)))
        elif not self.transport.is_closing():
            self.transport.close()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > _DISCARDED and not self.transport.is_closing():
            self.transport.close()

    def _wait(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def _refuse(self, refusal: Problem) -> None:
        """Answers with a problem, without the app, and closes.

        If an earlier request is being answered, that answer is the last. If the answer to this
        request has begun, it is cut off.
        """
        self.guards.refused[refusal.detail] += 1
        self.guards.count(refusal)
        self._deaf, self._requests.in_head, self._until = True, False, None
        if self._unanswered and not self._requests.in_body:
            self._last = True
            return
        if not self._requests.in_body or (self._unanswered == 1 and not self._started):
            if self._inner is not None:
                # The app waits for the body: it is told that the client has gone.
                inner, self._inner = self._inner, None
                self.disconnection.status = refusal.status
                inner.connection_lost(None)
                self.disconnection.happen()
            answer = response(refusal, {"X-Content-Type-Options": "nosniff", "Connection": "close"})
            phrase = HTTPStatus(refusal.status).phrase.encode()
            lines = [
                b"HTTP/1.1 %d %b" % (refusal.status, phrase),
                *map(b": ".join, answer.raw_headers),
            ]
            self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        self._flush()
        self.transport.close()


def _problem_of(fault: Fault) -> Problem:
    status, reason = fault
    return problem(name_of(status), reason, status=status)


class _Transport:
    """The transport for uvicorn's protocol: writing and closing go through the guard."""

    def __init__(self, guard: Guard) -> None:
        self.write, self.close = guard.write, guard.close
        self._guard = guard

    def is_closing(self) -> bool:
        return self._guard.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._guard.transport, name)


class GuardedApp:
    """ASGI app that tells a connection's guard when answers begin and end. Without a guard it does nothing."""

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
                    message = {
                        **message,
                        "headers": [*message.get("headers", ()), (b"connection", b"close")],
                    }
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


class ConnectionLimits(NamedTuple):
    """Limits of the connections of a service.

    connections : most connections
    of_an_address : most connections of one address; None behind a proxy, whose address they all
        have
    head_seconds, body_seconds : for a request's head, and for its body
    read_seconds : for a client to read its answer
    """

    connections: int
    of_an_address: int | None
    head_seconds: float
    body_seconds: float
    read_seconds: float


class Guards:
    """The connections of a process, of one event loop: counts them, and looks at each twice a second.

    Parameters
    ----------
    limits : of the service
    processes : workers of the service; each takes its part of the connections
    observe : called twice a second with the number of connections
    stopping : whether the service is stopping
    count : called with the problem of each refusal
    least_pace : bytes per second below which a client gives way now; 0: any pace will do
    inner : makes uvicorn's protocol
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        processes: int = 1,
        observe: Callable[[int], None] = lambda connections: None,
        stopping: Callable[[], bool] = lambda: False,
        count: Callable[[Problem], None] = lambda refusal: None,
        least_pace: Callable[[], int] = lambda: 0,
        inner: Callable[..., asyncio.Protocol] = HttpToolsProtocol,
    ) -> None:
        self.limits, self._observe, self._stopping, self._inner = limits, observe, stopping, inner
        self.count, self._least_pace = count, least_pace
        self._most = -(-limits.connections // processes)
        self._most_of_a_client = (
            None if limits.of_an_address is None else -(-limits.of_an_address // processes)
        )
        self._open: set[Guard] = set()
        self._of_clients: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()  # connections since the last look, by the reason

    def protocol(self, **options: Any) -> Guard:
        """Returns the protocol of a new connection, with uvicorn's options for its own protocol."""
        return Guard(lambda: self._inner(**options), self)

    def enter(self, guard: Guard) -> str | None:
        """Counts a connection; returns the reason if there are too many."""
        self._open.add(guard)
        peer = guard.transport.get_extra_info("peername")
        client = client_address(peer[0]) if isinstance(peer, tuple) else ""
        if self._of_clients.total() >= self._most:
            return "too many connections"
        most = self._most_of_a_client
        if client and most is not None and self._of_clients[client] >= most:
            return f"too many connections from this address; each worker takes {most}"
        guard.client = client or "-"
        self._of_clients[guard.client] += 1
        return None

    def leave(self, guard: Guard) -> None:
        """Takes a connection out of the count."""
        self._open.discard(guard)
        if guard.client:
            self._of_clients[guard.client] -= 1
            if not self._of_clients[guard.client]:
                del self._of_clients[guard.client]
            guard.client = ""

    async def watch(self) -> None:
        """Ends connections whose time is over, until cancelled."""
        while True:
            now = time.monotonic()
            try:
                self._observe(len(self._open))
            except Exception:
                # A bug, or no descriptors are left. Connections still need their deadlines.
                log.exception("the process cannot be looked at")
            for detail, count in self.refused.items():
                log.warning("%d refused: %s", count, detail)
            self.refused.clear()
            for guard in list(self._open):
                try:
                    if self._stopping():
                        guard.stop()
                    guard.look(now, self.limits.read_seconds, self._least_pace())
                except Exception:  # a bug; the others still need their deadlines
                    log.exception("a connection cannot be checked")
                    self.leave(guard)
            await asyncio.sleep(_SWEEP_SECONDS)

    def close(self) -> None:
        """Cuts off all connections."""
        for guard in list(self._open):
            guard.transport.abort()
