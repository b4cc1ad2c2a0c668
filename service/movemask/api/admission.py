"""`Admission`: middleware that bounds what is in flight, in requests and in bytes, before a body is read."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movemask.api import problems
from movemask.api.metrics import Metrics
from movemask.api.refusal import refuse
from movemask.errors import Overloaded
from movemask.settings import Settings

#: Bytes of an answer that are handed to the connection at once; the rest waits until the client has read some.
_PIECE = 262_144

#: Paths that are answered however much is in flight.
_PROBES = frozenset({"/livez", "/readyz", "/metrics"})


class Admission:
    """Refuses a request with a 503 at once if too many are in flight, or too many bytes of bodies and answers. A lone
    request is always let through, and so are the probes."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self._most, self._most_bytes = settings.max_requests, settings.max_in_flight_mb << 20
        self._longest = settings.max_body_bytes
        self._requests = self._bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _PROBES:
            await self._app(scope, receive, send)
            return
        held = self._body_size(scope)
        if self._requests and (self._requests >= self._most or self._bytes + held > self._most_bytes):
            full = Overloaded(
                f"{self._requests} requests of {self._bytes >> 20} MiB are in flight; the service takes "
                f"{self._most} of {self._most_bytes >> 20} MiB",
                retry_after=1,
            )
            problem = problems.problem_of(full)
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
            self._bytes += len(body)
            for start in range(0, len(body), _PIECE):
                more = message.get("more_body", False) or start + _PIECE < len(body)
                await send({**message, "body": body[start : start + _PIECE], "more_body": more})

        self._requests += 1
        self._bytes += held
        try:
            await self._app(scope, receive, send_in_pieces)
        finally:
            self._requests -= 1
            self._bytes -= held

    def _body_size(self, scope: Scope) -> int:
        """Bytes of the body, the most that it may have if it does not say."""
        names = dict(scope["headers"])
        if b"transfer-encoding" in names:
            return self._longest
        length = names.get(b"content-length", b"0")
        return min(int(length), self._longest) if length.isdigit() else self._longest
