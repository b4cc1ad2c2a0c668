"""`Admission`: middleware that bounds what is in flight, in requests and in bytes, before a body is read."""

from __future__ import annotations

import asyncio
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movemask.api import problems
from movemask.api.metrics import Metrics
from movemask.api.refusal import refuse
from movemask.errors import Overloaded
from movemask.settings import Settings

#: Bytes of an answer that are handed to the connection at once; the rest waits until the client has read some.
_PIECE = 262_144

#: The event loop is behind if a timer of the first comes later than the second, in seconds; requests beyond a few are
#: then refused, since each would make all others wait for longer.
_TICK, _BEHIND = 0.02, 0.1
_FEW = 32

#: Paths that are answered however much is in flight.
PROBES = frozenset({"/livez", "/readyz", "/metrics"})


class InFlight:
    """What is in flight in a process: requests, and bytes of their bodies and large answers."""

    def __init__(self, settings: Settings) -> None:
        self._most, self._most_bytes = settings.max_requests, settings.max_in_flight_mb << 20
        self.requests = self.bytes = 0
        self._behind = 0.0  # seconds that the event loop is behind
        self._ticking = False

    def refusal(self, size: int = 0) -> str | None:
        """Why another request with so many bytes cannot be taken; None if it can."""
        if self.requests and (self.requests >= self._most or self.bytes + size > self._most_bytes):
            return (
                f"{self.requests} requests of {self.bytes >> 20} MiB are in flight; the service takes "
                f"{self._most} of {self._most_bytes >> 20} MiB"
            )
        if self.requests > _FEW and self._behind > _BEHIND:
            return f"{self.requests} requests are in flight, and the service is {self._behind:.1f} s behind"
        return None

    def enter(self, size: int) -> None:
        """Counts a request that has been taken."""
        self.requests += 1
        self.bytes += size
        if not self._ticking and self.requests > _FEW:
            self._ticking = True
            self._tick(time.monotonic())

    def leave(self, size: int) -> None:
        """Counts the end of a request."""
        self.requests -= 1
        self.bytes -= size

    def _tick(self, due: float) -> None:
        """Measures how late the event loop is, while there are more than a few requests."""
        now = time.monotonic()
        self._behind = max(0.0, now - due)
        if self.requests > _FEW:
            asyncio.get_running_loop().call_later(_TICK, self._tick, now + _TICK)
        else:
            self._ticking, self._behind = False, 0.0


class Admission:
    """Refuses a request with a 503 at once if too many are in flight, or too many bytes of bodies and answers, or if
    the event loop cannot keep up with them. A lone request is always let through, and so are the probes.

    `Connection` refuses most before a task is made for them; this one knows the sizes of bodies, and works elsewhere.
    """

    def __init__(self, app: ASGIApp, in_flight: InFlight, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._in_flight = in_flight
        self._metrics = metrics
        self._longest = settings.max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        held = self._body_size(scope)
        refused = self._in_flight.refusal(held)
        if refused is not None:
            problem = problems.problem_of(Overloaded(refused, retry_after=1))
            self._metrics.problem(problem)
            await refuse(problems.response(problem), scope, receive, send)
            return

        async def send_in_pieces(message: Message) -> None:
            nonlocal held
            body = message.get("body", b"")
            if len(body) <= _PIECE:
                await send(message)
                return
            held += len(body)
            self._in_flight.bytes += len(body)
            for start in range(0, len(body), _PIECE):
                more = message.get("more_body", False) or start + _PIECE < len(body)
                await send({**message, "body": body[start : start + _PIECE], "more_body": more})

        self._in_flight.enter(held)
        try:
            await self._app(scope, receive, send_in_pieces)
        finally:
            self._in_flight.leave(held)

    def _body_size(self, scope: Scope) -> int:
        """Bytes of the body, the most that it may have if it does not say."""
        names = dict(scope["headers"])
        if b"transfer-encoding" in names:
            return self._longest
        length = names.get(b"content-length", b"0")
        return min(int(length), self._longest) if length.isdigit() else self._longest
