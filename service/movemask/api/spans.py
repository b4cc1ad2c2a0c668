"""OpenTelemetry spans within the request's span, which FastAPI makes: queue, network and answer.

Called only if an SDK is configured and the request's span is recording.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from opentelemetry.trace import Span, Tracer

from movemask.api.request_context import NetworkRun


def describe(span: Span, method: str, route: str, request_id: str) -> None:
    """Names the request's span by its route; FastAPI does so only for requests that reach its router."""
    span.update_name(f"{method} {route}")
    span.set_attributes({"http.route": route, "movemask.request_id": request_id})


def record(tracer: Tracer, runs: Sequence[NetworkRun]) -> None:
    """Makes the spans of a request's network runs, and an `answer` span from the end of the last until now."""
    epoch = time.time_ns() - time.perf_counter_ns()

    def nanoseconds(seconds: float) -> int:
        return epoch + int(seconds * 1e9)

    for run in runs:
        attributes: dict[str, str | int] = {"movemask.model": run.model, "movemask.positions": run.positions}
        submitted, started, ended = map(nanoseconds, (run.submitted, run.started, run.ended))
        tracer.start_span("queue", start_time=submitted, attributes=attributes).end(started)
        tracer.start_span("network", start_time=started, attributes=attributes).end(ended)
    if runs:
        tracer.start_span("answer", start_time=nanoseconds(runs[-1].ended)).end()
