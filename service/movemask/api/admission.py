"""`Admission`: middleware that bounds the bytes of bodies and large answers in flight, before a body is read."""

from __future__ import annotations

from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movemask.api import problems
from movemask.api.access import client_of
from movemask.api.metrics import Metrics
from movemask.api.refusal import refuse
from movemask.errors import Overloaded

#: Bytes of an answer that are handed to the connection at once; the rest waits until the client has read some.
_PIECE = 262_144

#: Paths that are answered however much is in flight.
PROBES = frozenset({"/livez", "/readyz", "/metrics"})


class BytesInFlight:
    """Bytes of bodies and large answers that a process holds, at most `most` of all clients and half of it of one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_clients: Counter[str] = Counter()
        self.total = 0

    def make_room(self, size: int, client: str, own: int = 0) -> None:
        """Raises Overloaded if there is no room for more bytes of a request that holds `own` already, or its client
        has half of the room. A lone request is let through."""
        mebi, theirs = self.total >> 20, self._of_clients[client]
        if self.total > own and self.total + size > self._most:
            fault = f"{mebi} MiB are in flight; the service takes {self._most >> 20} MiB"
        elif theirs > own and theirs + size > self._most // 2:
            fault = f"{theirs >> 20} MiB of yours are in flight; the service takes half of {self._most >> 20} MiB"
        else:
            return
        raise Overloaded(fault, retry_after=1)

    def hold(self, size: int, client: str) -> None:
        """Counts bytes of a client, or that they are gone. More than half of the room is not counted: answers that one
        client does not read keep nobody else out."""
        before = self._of_clients[client]
        self._of_clients[client] = after = before + size
        self.total += min(after, self._most // 2) - min(before, self._most // 2)
        if not after:
            del self._of_clients[client]


class Reservation:
    """The bytes in flight of one request."""

    __slots__ = ("_bytes", "_client", "_in_flight")

    def __init__(self, in_flight: BytesInFlight, client: str) -> None:
        self._in_flight, self._client, self._bytes = in_flight, client, 0

    def add(self, size: int) -> None:
        """Counts bytes that the client has sent; raises Overloaded if there is no room for them."""
        if size:
            self._in_flight.make_room(size, self._client, self._bytes)
            self.keep(size)

    def keep(self, size: int) -> None:
        """Counts bytes that are there anyway."""
        self._bytes += size
        self._in_flight.hold(size, self._client)

    def release(self) -> None:
        """Gives everything back."""
        if self._bytes:
            self._in_flight.hold(-self._bytes, self._client)
            self._bytes = 0


class Admission:
    """Answers 503 at once if too many bytes of bodies and answers are in flight. A lone request is always let through,
    and so are the probes."""

    def __init__(self, app: ASGIApp, in_flight: BytesInFlight, metrics: Metrics) -> None:
        self._app = app
        self._in_flight = in_flight
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        client = client_of(scope)
        reserved = Reservation(self._in_flight, client)
        begun = complete = False

        async def counted() -> Message:
            nonlocal complete
            message = await receive()
            complete = not message.get("more_body")
            reserved.add(len(message.get("body", b"")))
            return message

        async def send_in_pieces(message: Message) -> None:
            nonlocal begun
            begun = True
            body = message.get("body", b"")
            if len(body) <= _PIECE:
                await send(message)
                return
            reserved.keep(len(body))
            for start in range(0, len(body), _PIECE):
                more = message.get("more_body", False) or start + _PIECE < len(body)
                await send({**message, "body": body[start : start + _PIECE], "more_body": more})

        try:
            self._in_flight.make_room(0, client)
            await self._app(scope, counted, send_in_pieces)
        except Overloaded as error:
            if begun:
                raise
            problem = problems.problem_of(error)
            self._metrics.problem(problem)
            if complete:  # nothing more comes but the client's end
                await problems.response(problem)(scope, receive, send)
            else:
                await refuse(problems.response(problem), scope, receive, send)
        finally:
            reserved.release()
