"""What is gathered about the request under way, for its log line and its spans."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NetworkRun:
    """One submission to a network: when it was made, when its first batch began, when it was answered, by
    `time.perf_counter`."""

    model: str
    positions: int
    submitted: float
    started: float
    ended: float


@dataclass(slots=True)
class RequestContext:
    """How many positions a request was answered, and, if it is traced, its network runs."""

    positions: int = 0
    runs: list[NetworkRun] | None = None


#: Set by the middleware and never reset: each request has a task of its own.
request_context: ContextVar[RequestContext | None] = ContextVar("request_context", default=None)
