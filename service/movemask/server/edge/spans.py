"""`record_spans`: OpenTelemetry's spans of what a request waited for."""

from __future__ import annotations

import time
from collections.abc import Sequence

from opentelemetry import trace

from movemask.server.queue.queue import Submission


def record_spans(tracer: trace.Tracer, submissions: Sequence[Submission]) -> None:
    """Makes the spans `queue` and `network` of each submission, and `answer` from the end of the last one until now."""
    epoch = time.time_ns() - time.perf_counter_ns()

    def nanoseconds(seconds: float) -> int:
        return epoch + int(seconds * 1e9)

    for submission in submissions:
        attributes: dict[str, str | int] = {
            "movemask.model": submission.model,
            "movemask.positions": len(submission.evaluated),
        }
        submitted, started, ended = map(
            nanoseconds, (submission.submitted, submission.started, submission.ended)
        )
        tracer.start_span("queue", start_time=submitted, attributes=attributes).end(started)
        tracer.start_span("network", start_time=started, attributes=attributes).end(ended)
    tracer.start_span("answer", start_time=nanoseconds(submissions[-1].ended)).end()
