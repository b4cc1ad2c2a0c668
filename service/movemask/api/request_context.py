"""`RequestContext`: data for the log line and spans of the current request."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NetworkRun:
    """One submission to a network: when it was submitted, its first batch began and its last ended, by
    `time.perf_counter`."""

    model: str
    positions: int
    submitted: float
    started: float
    ended: float


@dataclass(slots=True)
class RequestContext:
    """The number of positions answered, the network runs if the request is traced, and the name of its API key."""

    positions: int = 0
    runs: list[NetworkRun] | None = None
    key: str | None = None


#: Set by the middleware and never reset, since each request runs in its own task.
request_context: ContextVar[RequestContext | None] = ContextVar("request_context", default=None)
