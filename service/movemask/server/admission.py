"""`AdmissionControl`: refuses requests before their body is read: by host, key, rate, and bytes in flight."""

from __future__ import annotations

from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movemask.errors import MovemaskError
from movemask.server import problems
from movemask.server.authentication import authenticate
from movemask.server.context import POLLED, context_of
from movemask.server.forwarded import see_through, without_port
from movemask.server.keys import Keys
from movemask.server.limits import BytesInFlight, RateLimit
from movemask.server.problems import ProblemError
from movemask.server.rates import Rates
from movemask.server.security_headers import security_headers
from movemask.server.settings import Settings
from movemask.server.telemetry import Metrics

#: Bytes of an answer that are handed to the connection at once; the rest waits until the client has read some.
_PIECE = 65_536

#: Bytes of bodies and large answers in flight, in all processes together.
MOST_BYTES = 64 << 20

#: Paths that do not count against a client's rate: probes, and the page, whose files are in memory.
_FREE = POLLED | {"/"}
_FREE_FILES = "/page/"


class AdmissionControl:
    """ASGI middleware: 400 for a host that is not trusted, 401 and 403 by the client's key, 429 above its rate, and
    503 when too many bytes are in flight. Adds the security and RateLimit headers to every answer.

    A request costs one position before its body is read, valid or not, with or without a key. Its route charges the
    others when the body is known. Probes are free.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys | None,
        settings: Settings,
        metrics: Metrics,
        rates: Rates,
        in_flight: BytesInFlight,
    ) -> None:
        self._app = app
        self._keys = keys
        self._proxies = settings.proxies
        self._hosts = [name.strip("[] ").lower() for name in settings.trusted_hosts.split(",")]
        self._rate = RateLimit(settings.client_rate, settings.client_burst, rates)
        self._in_flight = in_flight
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._proxies:
            see_through(scope, self._proxies)
        context, path = context_of(scope), scope["path"]
        security = security_headers(path, scope["scheme"])
        limited = False
        context.hold = partial(self._in_flight.take, context)

        async def counted() -> Message:
            message = await receive()
            if body := message.get("body"):
                context.hold(len(body))
            return message

        async def send_in_pieces(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name for name, _ in given}
                limits = self._rate.headers(context.client) if limited else []
                message["headers"] = [*given, *limits, *(pair for pair in security if pair[0] not in names)]
            body = message.get("body", b"")
            if len(body) <= _PIECE:
                await send(message)
                return
            self._in_flight.hold(context, len(body))
            for start in range(0, len(body), _PIECE):
                more = message.get("more_body", False) or start + _PIECE < len(body)
                await send({**message, "body": body[start : start + _PIECE], "more_body": more})
                self._in_flight.hold(context, -len(body[start : start + _PIECE]))  # the connection has it

        try:
            self._check_host(scope)
            free = path in _FREE or path.startswith(_FREE_FILES)
            try:
                authenticate(scope, context, self._keys)
            except ProblemError:
                free = False  # nobody guesses keys for nothing
                raise
            finally:
                if self._rate and not free:
                    limited, context.charge = True, partial(self._rate.charge, context)
                    context.charge(1)
            if path not in POLLED:
                self._in_flight.make_room(context)
        except MovemaskError as error:
            await problems.response_to(error, self._metrics.problem)(scope, receive, send_in_pieces)
        else:
            await self._app(scope, counted, send_in_pieces)
        finally:
            self._in_flight.release(context)

    def _check_host(self, scope: Scope) -> None:
        """Raises ProblemError for a host that is not trusted. Probes are asked by address.

        Starlette's TrustedHostMiddleware has neither the exception for probes nor a problem as its answer.
        """
        if "*" in self._hosts or scope["path"] in ("/livez", "/readyz"):
            return
        named = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        host = without_port(named).lower()
        domains = tuple(name[1:] for name in self._hosts if name.startswith("*."))
        if not host or not (host in self._hosts or host.endswith(domains)):
            fault = f"Host: {problems.shown(host)!r} is not served here (MOVEMASK_TRUSTED_HOSTS)"
            raise ProblemError("untrusted-host", fault)
