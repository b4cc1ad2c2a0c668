"""`Admission`: middleware that bounds what is in flight, in requests and in bytes, before a body is read."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movemask.api import problems
from movemask.api.access import client_of
from movemask.api.metrics import Metrics
from movemask.api.refusal import refuse
from movemask.api.request_context import request_context
from movemask.errors import Overloaded
from movemask.network.lanes import SHORT
from movemask.settings import Settings

#: Bytes of an answer that are handed to the connection at once; the rest waits until the client has read some.
_PIECE = 262_144

#: Seconds that the fastest short request of a while may take; if all take longer, fewer are let in, but a few always.
GOAL = 0.1
_FEW = 64
_LOOK_SECONDS = 0.05

#: Paths that are answered however much is in flight.
PROBES = frozenset({"/livez", "/readyz", "/metrics"})


class InFlight:
    """What is in flight in a process: requests, and bytes of their bodies and large answers.

    If even the fastest short request of a while takes longer than GOAL, more wait than can be answered in time, and the
    number of requests that are let in sinks by a fifth, else it rises again once it is reached. The fastest counts,
    because one that is slow by itself says nothing about the others.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._most, self._most_bytes = settings.max_requests, settings.max_in_flight_mb << 20
        self.requests = self.bytes = 0
        self._of_clients: Counter[str] = Counter()  # bytes
        self._limit = self._most
        self._fastest, self._looked = math.inf, 0.0
        self._reached = False  # since the last look

    @property
    def full(self) -> bool:
        """Whether another request cannot be taken."""
        return self.requests >= self._limit or (self.requests > 0 and self.bytes >= self._most_bytes)

    def check(self) -> None:
        """Raises Overloaded if another request cannot be taken."""
        if self.full:
            raise Overloaded(
                f"{self.requests} requests of {self.bytes >> 20} MiB are in flight; the service takes "
                f"{self._limit} of {self._most_bytes >> 20} MiB now",
                retry_after=1,
            )

    def begin(self) -> None:
        """Counts a request that has come whole."""
        self.requests += 1
        if self.requests >= self._limit:
            self._reached = True

    def hold(self, size: int, client: str) -> None:
        """Counts bytes of a client, or that they are gone. More than half of the room is not counted, so that answers
        that one client does not read keep nobody else out."""
        before = self._of_clients[client]
        self._of_clients[client] = after = before + size
        self.bytes += min(after, self._most_bytes // 2) - min(before, self._most_bytes // 2)
        if not after:
            del self._of_clients[client]

    def make_room(self, size: int, client: str, own: int) -> None:
        """Raises Overloaded if there is no room for more bytes of a request that holds `own` already, or its client
        has half of the room. A lone request is let through."""
        mebi, theirs = self.bytes >> 20, self._of_clients[client]
        if self.bytes > own and self.bytes + size > self._most_bytes:
            fault = f"{mebi} MiB are in flight; the service takes {self._most_bytes >> 20} MiB"
        elif theirs > own and theirs + size > self._most_bytes // 2:
            fault = f"{theirs >> 20} MiB of yours are in flight; the service takes half of {self._most_bytes >> 20} MiB"
        else:
            return
        raise Overloaded(fault, retry_after=1)

    def answered(self, seconds: float) -> None:
        """Counts a request that has been answered, and how long it took; or infinity for a long one."""
        self._fastest = min(self._fastest, seconds)
        now = self.clock()
        if now - self._looked < _LOOK_SECONDS:
            return
        if GOAL < self._fastest < math.inf:
            self._limit = max(min(_FEW, self._most), min(self._limit, self.requests + 1) * 4 // 5)
        elif self._reached:
            self._limit = min(self._most, self._limit * 5 // 4)
        self._fastest, self._looked, self._reached = math.inf, now, False


class Held:
    """What one request holds of `InFlight`."""

    def __init__(self, in_flight: InFlight, client: str) -> None:
        self._in_flight, self._client = in_flight, client
        self._bytes, self._since = 0, math.nan

    def add(self, size: int) -> None:
        """Counts bytes that the client has sent; raises Overloaded if there is no room for them."""
        if size:
            self._in_flight.make_room(size, self._client, self._bytes)
            self.keep(size)

    def keep(self, size: int) -> None:
        """Counts bytes that are there anyway."""
        self._bytes += size
        self._in_flight.hold(size, self._client)

    def enter(self) -> None:
        """Counts the request as in flight, once; raises Overloaded if too many are."""
        if math.isnan(self._since):
            self._in_flight.check()
            self._since = self._in_flight.clock()
            self._in_flight.begin()

    def leave(self) -> None:
        """Counts the request as answered, once."""
        if self._since >= 0:
            seconds, self._since = self._in_flight.clock() - self._since, -1
            self._in_flight.requests -= 1
            context = request_context.get()
            short = context is None or context.positions <= SHORT
            self._in_flight.answered(seconds if short else math.inf)

    def release(self) -> None:
        """Gives everything back."""
        self.leave()
        self._in_flight.hold(-self._bytes, self._client)
        self._bytes = 0


class Admission:
    """Refuses a request with a 503 at once if too many are in flight, or too many bytes of bodies and answers. A lone
    request is always let through, and so are the probes.

    A request is in flight from its last byte to the first of its answer: clients that send or read slowly hold a
    connection and what bytes they have sent, but nobody else's place. `Connection` refuses most before a task is made
    for them; this one counts, and works elsewhere.
    """

    def __init__(self, app: ASGIApp, in_flight: InFlight, metrics: Metrics) -> None:
        self._app = app
        self._in_flight = in_flight
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        client = client_of(scope)
        held = Held(self._in_flight, client)
        begun = complete = False

        async def counted() -> Message:
            nonlocal complete
            message = await receive()
            complete = not message.get("more_body")
            held.add(len(message.get("body", b"")))
            if complete and message["type"] == "http.request":
                held.enter()
            return message

        async def send_in_pieces(message: Message) -> None:
            nonlocal begun
            begun = True
            held.leave()
            body = message.get("body", b"")
            if len(body) <= _PIECE:
                await send(message)
                return
            held.keep(len(body))
            for start in range(0, len(body), _PIECE):
                more = message.get("more_body", False) or start + _PIECE < len(body)
                await send({**message, "body": body[start : start + _PIECE], "more_body": more})

        try:
            self._in_flight.check()
            self._in_flight.make_room(0, client, 0)
            if scope["method"] != "POST" or not _has_body(scope):  # no other method's body is read
                held.enter()
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
            held.release()


def _has_body(scope: Scope) -> bool:
    names = dict(scope["headers"])
    return b"transfer-encoding" in names or names.get(b"content-length", b"0") != b"0"
