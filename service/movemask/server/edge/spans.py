"""`record_spans`: OpenTelemetry's spans of what a request waited for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from opentelemetry import trace


class Wait(NamedTuple):
    """What a request waited for: positions in a model's queue and in its network. Times are of time.perf_counter."""

    model: str
    positions: int
    submitted: float
    started: float
    ended: float


def record_spans(tracer: trace.Tracer, waits: Sequence[Wait]) -> None:
    """Makes the spans `queue` and `network` of each wait, and `answer` from the end of the last one until now."""
    epoch = time.time_ns() - time.perf_counter_ns()

    def nanoseconds(seconds: float) -> int:
        return epoch + int(seconds * 1e9)

    for wait in waits:
        attributes: dict[str, str | int] = {
            "movemask.model": wait.model,
            "movemask.positions": wait.positions,
        }
        submitted, started, ended = map(nanoseconds, (wait.submitted, wait.started, wait.ended))
        tracer.start_span("queue", start_time=submitted, attributes=attributes).end(started)
        tracer.start_span("network", start_time=started, attributes=attributes).end(ended)
    tracer.start_span("answer", start_time=nanoseconds(waits[-1].ended)).end()
