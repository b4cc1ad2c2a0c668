"""`Edge`: the middleware of the service, which every request goes through.

It makes the request's context, finds the client and its key, and checks the rate. Then it calls the
app, sets the headers of the answer, and counts and logs the request. It does so also for a browser
that asks whether a page of another origin may call (CORS). What belongs to a route is declared at
the route (`routing.py`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from functools import partial

from opentelemetry import trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movemask.errors import MovemaskError, ShuttingDown, shown
from movemask.server import logs, problems
from movemask.server.edge.authentication import identify
from movemask.server.edge.context import (
    CLIENT_CLOSED,
    CONTEXT,
    DISCONNECTION,
    RequestContext,
)
from movemask.server.edge.forwarded import see_through
from movemask.server.edge.headers import Answering, with_headers
from movemask.server.edge.keys import Keys
from movemask.server.edge.limits import BytesInFlight, RateLimit
from movemask.server.edge.sites import Sites
from movemask.server.edge.spans import record_spans
from movemask.server.edge.traits import Table
from movemask.server.metrics import Metrics
from movemask.server.problems import ProblemError

log = logging.getLogger(__name__)

#: Bytes of an answer that are handed to the connection at once; the rest waits until the client has read some.
_PIECE = 65_536

#: Bytes of bodies and large answers in flight, in all processes together.
MOST_BYTES = 64 << 20

#: Starlette's routes match a path with a line feed at its end, which a proxy's rules for the path do not.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


class Edge:
    """ASGI middleware: 400 for a path with a control character or a host that is not trusted, 403 for a page of another
    site, 429 above the client's rate, 503 when too many bytes are in flight, and 500 if the app fails.

    A request costs one position before its body is read, valid or not. Its route charges the others when the body is
    known. Probes are free.

    Parameters
    ----------
    proxies : number of proxies in front of the service
    sites : by which names the service is asked, and by whose pages
    routes : what the routes declare
    cors : wraps an app, so that pages of other origins may call it and read its answers
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys | None,
        metrics: Metrics,
        rate: RateLimit,
        in_flight: BytesInFlight,
        tracer: trace.Tracer,
        *,
        proxies: int,
        sites: Sites,
        routes: Table,
        cors: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    ) -> None:
        self._app = cors(app)
        self._cors = cors
        self._keys = keys
        self._metrics = metrics
        self._tracer = tracer
        self._proxies, self._sites, self._rate = proxies, sites, rate
        self._in_flight, self._routes = in_flight, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        span = trace.get_current_span()
        head = scope["method"] == "HEAD"  # passed on as GET; the server leaves out the body
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        route = self._routes.find("GET" if head else scope["method"], path)
        context = RequestContext(
            id=logs.id_of(scope["headers"]),
            traits=route,
            head=head,
            waits=[] if span.is_recording() else None,
        )
        context.hold = partial(self._in_flight.take, context)
        logs.request_id.set(context.id)  # for log lines of other modules
        span.set_attribute("movemask.request_id", context.id)
        scope = {**scope, "method": "GET" if head else scope["method"], CONTEXT: context}
        status = 0

        async def read() -> Message:
            message = await receive()
            if body := message.get("body"):
                context.hold(len(body))
            return message

        async def write(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = self._headers(scope, context, message)
            elif context.waits and not message.get("more_body"):
                record_spans(self._tracer, context.waits)
            body = message.get("body", b"")
            if route.shared or len(body) <= _PIECE:
                await send(message)
                return
            self._in_flight.hold(context, len(body))
            for start in range(0, len(body), _PIECE):
                piece = body[start : start + _PIECE]
                more = message.get("more_body", False) or start + _PIECE < len(body)
                await send({**message, "body": piece, "more_body": more})
                self._in_flight.hold(context, -len(piece))  # the connection has it

        try:
            self._admit(scope, path, context)
            await self._app(scope, read, write)
            status = status or CLIENT_CLOSED  # the client left a stream before its first line
        except asyncio.CancelledError:
            if DISCONNECTION not in scope:  # a tool's request, by this app
                raise
            if not status:  # uvicorn cancels what is left at the end of the drain
                error = ShuttingDown(
                    "the service is stopping, and the request was not complete in time",
                    retry_after=5,
                )
                await problems.response_to(error, self._metrics.problem)(scope, read, write)
        except Exception as error:
            if status:
                raise
            if not isinstance(error, MovemaskError):
                log.exception("%s %s failed", scope["method"], shown(scope["path"]))
            response = problems.response_to(error, self._metrics.problem)
            # A page may read a refusal too. A browser's question of what a page may do is refused as it is.
            await (response if scope["method"] == "OPTIONS" else self._cors(response))(
                scope, read, write
            )
        finally:
            self._in_flight.release(context)
            method = "HEAD" if head else scope["method"] if scope["method"] in _METHODS else "other"
            seconds = time.perf_counter() - began
            status = status or 500
            self._metrics.count_request(route.path, method, status, seconds, timed=route.timed)
            probe = route.polled and status < 400
            logs.access(
                method,
                route.path,
                status,
                seconds,
                context.answers,
                context.id,
                context.key,
                debug=probe,
            )

    def _admit(self, scope: Scope, path: str, context: RequestContext) -> None:
        """Raises MovemaskError if the request is refused before its route gets it."""
        if self._proxies:
            see_through(scope, self._proxies)
        identify(scope, context, self._keys)
        if _CONTROL.search(path):
            raise ProblemError(
                "malformed-path", f"{shown(path)!r}: a path has no control characters"
            )
        if not context.traits.any_host:
            self._sites.check_host(scope)
            self._sites.check_site(scope)
        if self._rate:
            context.charge = partial(self._rate.charge, context)
            if not context.traits.free:
                context.charge(1)
        if not (context.traits.polled or context.traits.shared):
            self._in_flight.make_room(context)

    def _headers(
        self, scope: Scope, context: RequestContext, message: Message
    ) -> list[tuple[bytes, bytes]]:
        """Returns all headers of an answer: the app's own, and those of `HEADERS`."""
        own, failed = list(message.get("headers", ())), message["status"] >= 400
        # A client that waits for 100 Continue sends no body after an error: its next bytes are a new request.
        if failed and any(name == b"expect" for name, _ in scope["headers"]):
            own.append((b"connection", b"close"))
        answering = Answering(context.id, context.client, self._rate)
        return with_headers(own, context.traits, scope["scheme"], answering, failed=failed)
