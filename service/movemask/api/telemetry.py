"""What a request leaves behind: `RequestContext` while it runs, then a log line, metrics and OpenTelemetry spans."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from opentelemetry import trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movemask import logs
from movemask.api import keys
from movemask.api.metrics import Metrics
from movemask.errors import MovemaskError
from movemask.network.queue import Submission
from movemask.pipeline import Caller

#: Routes polled every few seconds; logged at debug unless they fail.
_PROBES = {"/livez", "/readyz", "/metrics"}

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

_CONTEXT = "movemask"  # in the scope


@dataclass(slots=True)
class RequestContext(Caller):
    """What is known of one request, in its scope.

    `key` is the name of its API key, and `scopes` what it may do. `taken` is how many positions count against the
    client's rate so far, and `take` makes them as many as its argument says, or raises RateLimited. `held` is its bytes
    in flight. `runs`, of each network its name, how many positions it ran on and the submission, is None unless the
    request is traced.
    """

    id: str
    client: str = ""
    key: str | None = None
    scopes: frozenset[keys.Scope] = frozenset(keys.Scope)
    taken: int = 0
    take: Callable[[int], None] = field(default=lambda positions: None)
    held: int = 0
    positions: int = 0
    runs: list[tuple[str, int, Submission]] | None = None

    def delivered(self, model: str, submission: Submission, ran: int) -> None:
        """Adds answered positions to the log line, and the network's run to the spans."""
        self.positions += sum(not isinstance(result, MovemaskError) for result in submission.results)
        if self.runs is not None and ran:
            self.runs.append((model, ran, submission))


def context_of(scope: Scope) -> RequestContext:
    """The context of a request."""
    context: RequestContext = scope[_CONTEXT]
    return context


class RequestLog:
    """ASGI middleware that makes the context of each request, and counts, logs and traces it under an id, which is
    returned in X-Request-ID."""

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
        request_id = logs.id_of(scope["headers"])
        context = scope[_CONTEXT] = RequestContext(request_id, runs=[] if traced else None)
        logs.request_id.set(request_id)  # for lines that anything logs on the way

        async def send_observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                if status >= 400 and _expects(scope):
                    message["headers"].append((b"connection", b"close"))
                if traced:  # FastAPI names the span by its route only where its router is reached
                    span.update_name(f"{_method(scope)} {_route(scope)}")
                    span.set_attributes({"http.route": _route(scope), "movemask.request_id": request_id})
            elif context.runs and not message.get("more_body"):
                self._record(context.runs)
            await send(message)

        try:
            await self._app(scope, receive, send_observed)
        finally:
            route, method, seconds = _route(scope), _method(scope), time.perf_counter() - started
            self._metrics.requests.labels(route, method, str(status)).inc()
            self._metrics.request_seconds.labels(route).observe(seconds)
            probe = route in _PROBES and status < 400
            logs.access(method, route, status, seconds, context.positions, request_id, context.key, debug=probe)

    def _record(self, runs: Sequence[tuple[str, int, Submission]]) -> None:
        """Makes the spans of a request's network runs, and an `answer` span from the end of the last until now."""
        epoch = time.time_ns() - time.perf_counter_ns()

        def nanoseconds(seconds: float) -> int:
            return epoch + int(seconds * 1e9)

        for model, positions, run in runs:
            attributes: dict[str, str | int] = {"movemask.model": model, "movemask.positions": positions}
            submitted, started, ended = map(nanoseconds, (run.submitted, run.started, run.ended))
            self._tracer.start_span("queue", start_time=submitted, attributes=attributes).end(started)
            self._tracer.start_span("network", start_time=started, attributes=attributes).end(ended)
        self._tracer.start_span("answer", start_time=nanoseconds(runs[-1][2].ended)).end()


def _expects(scope: Scope) -> bool:
    """Whether the client waits for 100 Continue: once refused it sends no body, and the next request would be taken
    for one."""
    return any(name == b"expect" for name, _ in scope["headers"])


def _route(scope: Scope) -> str:
    """The template of the path, such as `/v1/models/{name}`."""
    path: str = getattr(scope.get("route"), "path", "other")
    return path


def _method(scope: Scope) -> str:
    """The method if HTTP defines it, else `other`: clients cannot invent labels."""
    return scope["method"] if scope["method"] in _METHODS else "other"
