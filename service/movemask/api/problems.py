"""Errors as RFC 9457 `application/problem+json`, and the table of their statuses and types."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from movemask.errors import CapacityError, MovemaskError, StoreError
from movemask.logs import request_id
from movemask.schemas.answers import TYPE_PREFIX, ErrorOut, Problem
from movemask.schemas.shapes import as_json

log = logging.getLogger(__name__)

_Error, _Problem = as_json(ErrorOut), as_json(Problem)

CONTENT_TYPE = "application/problem+json"
SERVED_LEAKAGE = "served-leakage"

_UNPROCESSABLE = (
    "invalid-request invalid-fen invalid-position illegal-move unsupported-variant invalid-rule not-calibrated "
    "invalid-pgn unknown-kind invalid-parameter invalid-sweep invalid-audit limit-exceeded"
)

#: The status of each problem by its name. An error's problem has the name of its class, or of the next class above it
#: that is here: `InvalidFen` is an `invalid-fen`. Any other error is an `internal-error`.
STATUSES: dict[str, HTTPStatus] = {
    name: status
    for status, names in {
        HTTPStatus.BAD_REQUEST: "malformed-json untrusted-host",
        HTTPStatus.UNAUTHORIZED: "unauthorized",
        HTTPStatus.FORBIDDEN: "forbidden",
        HTTPStatus.NOT_FOUND: "unknown-model",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "body-too-large",
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "unsupported-media-type",
        HTTPStatus.UNPROCESSABLE_ENTITY: _UNPROCESSABLE,
        HTTPStatus.TOO_MANY_REQUESTS: "rate-limited",
        HTTPStatus.INTERNAL_SERVER_ERROR: f"{SERVED_LEAKAGE} internal-error",
        HTTPStatus.BAD_GATEWAY: "model-error",
        HTTPStatus.SERVICE_UNAVAILABLE: "overloaded shutting-down model-unavailable audit-unavailable not-ready",
    }.items()
    for name in names.split()
}

#: What a database says may name its host, port and user, which are for the log alone.
AUDIT_UNWRITABLE = "the audit cannot be written now; the service's log says why"

#: The value of a field that a body gives twice: no field takes it, so its error has its path.
REPEATED = object()

_LONGEST_INPUT = 80
_MOST_ERRORS = 20


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI responses of these statuses."""
    content = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


class ProblemError(MovemaskError):
    """A problem of HTTP rather than of chess or a network."""

    def __init__(self, name: str, detail: str, headers: Mapping[str, str] | None = None, **extra: Any) -> None:
        super().__init__(detail)
        self.problem, self.headers = problem(name, detail, **extra), headers


def problem(name: str, detail: str, *, status: int | None = None, **extra: Any) -> Problem:
    """A problem by its name; `status` if it is none of the table's."""
    title = name.replace("-", " ").capitalize().replace("fen", "FEN").replace("json", "JSON")
    status = status or STATUSES[name].value
    return Problem(type=TYPE_PREFIX + name, title=title, status=status, detail=detail, **extra)


def problem_of(error: Exception) -> Problem:
    """The problem that describes an error, with what the error says beside its message."""
    if isinstance(error, ProblemError):
        return error.problem
    if isinstance(error, StoreError):
        return problem("audit-unavailable", "the audit cannot be read now; the service's log says why")
    for kind in type(error).__mro__:
        name = re.sub(r"\B(?=[A-Z])", "-", kind.__name__).lower()
        if name in STATUSES:
            return problem(name, str(error), **vars(error))
    return problem("internal-error", "an error in the service; its log says more")


def invalid_request(details: Sequence[Any], *, skip: int = 0, item: str = "body") -> ProblemError:
    """pydantic's errors as one. Field names leave out the first `skip` parts of a location; an error of the whole is
    reported for `item`."""
    listed = [
        {"field": _field(error["loc"][skip:]) or item, "message": _message(error)} for error in details[:_MOST_ERRORS]
    ]
    detail = "; ".join(f"{error['field']}: {error['message']}" for error in listed[:5])
    if len(details) > 5:
        detail += f"; and {len(details) - 5} more"
    return ProblemError("invalid-request", detail, errors=listed)


def invalid_field(field: str, message: str) -> ProblemError:
    """The error of one invalid field of a body."""
    name = shown(field)
    return ProblemError("invalid-request", f"{name}: {message}", errors=[{"field": name, "message": message}])


def response(problem: Problem, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The HTTP response of a problem, with Retry-After if it has one."""
    body = problem.model_dump(mode="json", exclude_unset=True)
    retry = {"Retry-After": str(body["retry_after"])} if "retry_after" in body else {}
    current_id = request_id.get()
    if current_id is not None:
        body["request_id"] = current_id
    return JSONResponse(body, problem.status, {**(headers or {}), **retry}, media_type=CONTENT_TYPE)


def error_out(problem: Problem) -> ErrorOut:
    """An item that failed."""
    fields: dict[str, Any] = problem.model_dump(mode="json", exclude_unset=True)
    return _Error(error=_Problem(**fields))


def answer_to(error: Exception, count: Callable[[Problem], None]) -> JSONResponse:
    """The HTTP response to an error; calls `count` with its problem."""
    problem = problem_of(error)
    count(problem)
    return response(problem, error.headers if isinstance(error, ProblemError) else None)


def install_handlers(app: FastAPI, count: Callable[[Problem], None]) -> None:
    """Installs handlers that answer every error, FastAPI's own included, with a problem; calls `count` with each."""

    async def expected(http: Request, error: Exception) -> JSONResponse:
        asked = f"{http.method} {http.url.path}"
        if isinstance(error, RequestValidationError):
            error = invalid_request(error.errors(), skip=1)
        elif isinstance(error, HTTPException):
            status, own = HTTPStatus(error.status_code), dict(error.headers or {})
            if own.get("Allow") == "GET":  # `RequestLog` answers HEAD too
                own["Allow"] = "GET, HEAD"
            name = status.phrase.lower().replace(" ", "-")
            error = ProblemError(name, f"{asked}: {status.phrase}", own, status=status)
        answer = answer_to(error, count)
        if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, CapacityError):
            log.error("%s: %s: %s", asked, type(error).__name__, error)
        return answer

    async def unexpected(http: Request, error: Exception) -> JSONResponse:
        return answer_to(error, count)

    for kind in (MovemaskError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, expected)
    app.add_exception_handler(Exception, unexpected)


def _field(location: Sequence[Any]) -> str:
    name = ""
    for part in location:
        name += f"[{part}]" if isinstance(part, int) else f".{shown(part)}" if name else shown(part)
    return name


def _message(error: Any) -> str:
    """pydantic's message with the offending input, shortened."""
    if error.get("input") is REPEATED:
        return "is given twice"
    if error["type"] == "missing":
        return "is missing"
    if error["type"] == "extra_forbidden":
        return "no such field"
    if error["type"] == "model_type":  # pydantic's message would name our class
        error = {**error, "msg": "Input should be an object"}
    message = str(error["msg"]).removeprefix("Value error, ")
    value = error.get("input")
    if isinstance(value, str | int | float | bool) or value is None:
        message += f", got {shown(json.dumps(value) if value is None or isinstance(value, bool) else repr(value))}"
    return message


def shown(text: str) -> str:
    """A client's text, shortened, and escaped where it cannot be written as UTF-8."""
    cut = text if len(text) <= _LONGEST_INPUT else text[:_LONGEST_INPUT] + "…"
    return cut.encode("utf-8", "backslashreplace").decode()
