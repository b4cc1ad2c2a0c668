"""Middleware: body limits, and metrics, log lines and spans of requests. Plain ASGI, so that routes still see a client
disconnect."""

from __future__ import annotations

import time
from collections.abc import Sequence

from opentelemetry import trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movemask import logs
from movemask.api import problems, spans
from movemask.api.direct import DirectRoute
from movemask.api.metrics import Metrics
from movemask.api.refusal import refuse
from movemask.api.request_context import RequestContext, request_context
from movemask.api.schemas.problem import Problem
from movemask.settings import Settings

#: Routes polled every few seconds; logged at debug unless they fail.
_PROBES = {"/livez", "/readyz", "/metrics"}

_BODY_METHODS = {"POST", "PUT", "PATCH"}


class BodyGuard:
    """Refuses a body whose type is not JSON (415) or that is larger than its route's limit (413). A body over
    `max_body_bytes` is not even read."""

    def __init__(self, app: ASGIApp, routes: Sequence[DirectRoute], settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._limit = settings.max_body_bytes
        self._routes = {route.path: (route, route.limits(settings).size) for route in routes}
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _BODY_METHODS:
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        route, limit = self._routes.get(scope["path"], (None, self._limit))
        refused = self._refused(scope["method"], headers, limit)
        if refused is not None:
            if route is not None:
                scope["route"] = route  # for the metrics and the log; nothing behind this sees the request
            self._metrics.problem(refused)
            await refuse(problems.response(refused), scope, receive, send, self._limit)
            return
        await self._app(scope, self._counted(receive, limit), send)

    def _refused(self, method: str, headers: dict[bytes, str], limit: int) -> Problem | None:
        length = headers.get(b"content-length", "")
        if length.isdigit() and int(length) > limit:
            return self._too_large(f"{length} bytes", limit)
        if method != "POST":  # no route takes it, and routing says so
            return None
        media_type = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        if media_type == "application/json" or (media_type.startswith("application/") and media_type.endswith("+json")):
            return None
        fault = f"is {media_type!r}" if media_type else "is missing"
        return problems.problem(
            problems.UNSUPPORTED_MEDIA_TYPE, f"Content-Type {fault}; send the body with Content-Type: application/json"
        )

    def _counted(self, receive: Receive, limit: int) -> Receive:
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit:
                raise problems.ProblemError(self._too_large(f"over {limit} bytes", limit))
            return message

        return counted

    def _too_large(self, size: str, limit: int) -> Problem:
        why = "MOVEMASK_MAX_BODY_BYTES" if limit == self._limit else "what a request of this route can need"
        return problems.problem(problems.BODY_TOO_LARGE, f"body: {size}, at most {limit} are taken ({why})")


class Counted:
    """Counts, logs and traces requests, and gives each an id, returned in X-Request-ID."""

    def __init__(self, app: ASGIApp, metrics: Metrics, tracer: trace.Tracer) -> None:
        self._app = app
        self._metrics = metrics
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        started = time.perf_counter()
        span = trace.get_current_span()
        traced = span.is_recording()
        context = RequestContext(runs=[] if traced else None)
        request_context.set(context)
        request_id = logs.id_of(scope["headers"])
        logs.request_id.set(request_id)

        async def send_observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                if traced:
                    spans.describe(span, _method(scope), _route(scope), request_id)
            elif context.runs and not message.get("more_body"):
                spans.record(self._tracer, context.runs)
            await send(message)

        try:
            await self._app(scope, receive, send_observed)
        finally:
            route, method, seconds = _route(scope), _method(scope), time.perf_counter() - started
            self._metrics.requests.labels(route, method, str(status)).inc()
            self._metrics.request_seconds.labels(route).observe(seconds)
            probe = route in _PROBES and status < 400
            logs.access(method, route, status, seconds, context.positions, request_id, context.key, debug=probe)


def _route(scope: Scope) -> str:
    """The template of the path, such as `/v1/models/{name}`."""
    path: str = getattr(scope.get("route"), "path", "other")
    return path


def _method(scope: Scope) -> str:
    """The method if HTTP defines it, else `other`, so that clients cannot invent labels."""
    known = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
    return scope["method"] if scope["method"] in known else "other"
