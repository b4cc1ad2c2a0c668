"""What is gathered about the request under way, for its log line and its spans."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from movemask.pipeline import NetworkRun


@dataclass(slots=True)
class RequestContext:
    """How many positions a request was answered, and, if it is traced, its network runs."""

    positions: int = 0
    runs: list[NetworkRun] | None = None


#: Set by the middleware and never reset: each request has a task of its own.
request_context: ContextVar[RequestContext | None] = ContextVar("request_context", default=None)
