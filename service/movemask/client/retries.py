"""When a request is sent again, and the errors of one that is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from movemask.api.schemas.problem import Problem
from movemask.errors import ApiError

#: Seconds to wait without a Retry-After, doubled each time, and the most with one.
_FIRST, _MOST = 0.5, 30.0

#: Statuses of a service that can answer later: 429 with rate limits, and 503.
_LATER = (429, 503)


@dataclass(frozen=True, slots=True)
class Retries:
    """Every request may be sent again: none of them changes anything."""

    most: int

    def wait(self, attempt: int, status: int | None, headers: Mapping[str, str]) -> float | None:
        """Seconds to wait before another attempt; None to give up. `status` is None if no connection was made."""
        if attempt >= self.most or status not in (None, *_LATER):
            return None
        delay = headers.get("Retry-After", "")
        if status is not None and not delay.isdigit():  # such as a model that failed its check: waiting does not help
            return None
        return min(float(delay), _MOST) if delay.isdigit() else min(_FIRST * 2**attempt, _MOST)


def error_of(status: int, content: bytes) -> ApiError:
    """The error in a response; one that is no problem, such as a proxy's page, is told by its status."""
    try:
        problem = Problem.model_validate(json.loads(content))
    except ValueError:
        return ApiError(status, "about:blank", f"HTTP {status}", f"the service answered {status}, without a problem")
    return error_of_problem(problem)


def error_of_problem(problem: Problem) -> ApiError:
    """A problem as an exception."""
    return ApiError(
        problem.status, problem.type, problem.title, problem.detail, problem.request_id, problem.model_extra or {}
    )
