"""Errors as RFC 9457 `application/problem+json`, and the table of their statuses and types."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Scope

from movemask import errors
from movemask.api.schemas.answers import TYPE_PREFIX, FieldError, Problem
from movemask.errors import CapacityError, InvalidPosition, MovemaskError
from movemask.logs import request_id

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
SERVED_LEAKAGE = "served-leakage"

#: Error class → status and name, subclasses first. Any other error is a 500 `internal-error`.
TABLE: tuple[tuple[type[MovemaskError], HTTPStatus, str], ...] = (
    (errors.InvalidFen, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-fen"),
    (errors.InvalidPosition, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-position"),
    (errors.IllegalMove, HTTPStatus.UNPROCESSABLE_ENTITY, "illegal-move"),
    (errors.UnsupportedVariant, HTTPStatus.UNPROCESSABLE_ENTITY, "unsupported-variant"),
    (errors.InvalidRule, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-rule"),
    (errors.NotCalibrated, HTTPStatus.UNPROCESSABLE_ENTITY, "not-calibrated"),
    (errors.InvalidPgn, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-pgn"),
    (errors.UnknownModel, HTTPStatus.NOT_FOUND, "unknown-model"),
    (errors.UnknownKind, HTTPStatus.UNPROCESSABLE_ENTITY, "unknown-kind"),
    (errors.InvalidParameter, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-parameter"),
    (errors.InvalidSweep, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-sweep"),
    (errors.InvalidAudit, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-audit"),
    (errors.LimitExceeded, HTTPStatus.UNPROCESSABLE_ENTITY, "limit-exceeded"),
    (errors.Overloaded, HTTPStatus.SERVICE_UNAVAILABLE, "overloaded"),
    (errors.RateLimited, HTTPStatus.TOO_MANY_REQUESTS, "rate-limited"),
    (errors.ShuttingDown, HTTPStatus.SERVICE_UNAVAILABLE, "shutting-down"),
    (errors.ModelUnavailable, HTTPStatus.SERVICE_UNAVAILABLE, "model-unavailable"),
    (errors.ModelError, HTTPStatus.BAD_GATEWAY, "model-error"),
    (errors.ServedLeakage, HTTPStatus.INTERNAL_SERVER_ERROR, SERVED_LEAKAGE),
    (errors.StoreError, HTTPStatus.SERVICE_UNAVAILABLE, "audit-unavailable"),
)

#: Problems without an error class.
MALFORMED_JSON = (HTTPStatus.BAD_REQUEST, "malformed-json")
INVALID_REQUEST = (HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-request")
UNTRUSTED_HOST = (HTTPStatus.BAD_REQUEST, "untrusted-host")
UNAUTHORIZED = (HTTPStatus.UNAUTHORIZED, "unauthorized")
FORBIDDEN = (HTTPStatus.FORBIDDEN, "forbidden")
BODY_TOO_LARGE = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body-too-large")
UNSUPPORTED_MEDIA_TYPE = (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type")
INTERNAL_ERROR = (HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error")
NOT_READY = (HTTPStatus.SERVICE_UNAVAILABLE, "not-ready")

#: What a database says may name its host, port and user, which are for the log alone.
_AUDIT_UNREADABLE = "the audit cannot be read now; the service's log says why"
AUDIT_UNWRITABLE = "the audit cannot be written now; the service's log says why"

_LONGEST_INPUT = 80
_MOST_ERRORS = 20

_DESCRIPTIONS = {
    400: "The body is not JSON.",
    401: "Keys are set, and the request has none that is valid.",
    403: "The key lacks the scope of this route.",
    404: "No such model.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    422: "A position, move, field or parameter is invalid; `detail` names it.",
    429: "The client exceeds its rate. See Retry-After and RateLimit.",
    502: "The network's logits do not give a distribution.",
    503: "Overloaded, stopping, the model failed its check, or the audit cannot be read. See Retry-After.",
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI responses of these statuses."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {status: {"description": _DESCRIPTIONS[status], "content": {CONTENT_TYPE: schema}} for status in statuses}


class ProblemError(HTTPException):
    """A problem raised before a route is reached; an HTTPException, so that FastAPI does not wrap it."""

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem.status, headers=headers)
        self.problem = problem


def problem(kind: tuple[HTTPStatus, str], detail: str, **extra: Any) -> Problem:
    """A problem of the given status and name."""
    status, name = kind
    title = name.replace("-", " ").capitalize().replace("fen", "FEN").replace("json", "JSON")
    return Problem(type=TYPE_PREFIX + name, title=title, status=status.value, detail=detail, **extra)


def problem_of(error: MovemaskError) -> Problem:
    """The problem that describes an error."""
    for kind, status, name in TABLE:
        if isinstance(error, kind):
            extra: dict[str, Any] = {}
            if isinstance(error, InvalidPosition):
                extra["statuses"] = list(error.statuses)
            if isinstance(error, CapacityError):
                extra["retry_after"] = error.retry_after
            detail = _AUDIT_UNREADABLE if isinstance(error, errors.StoreError) else str(error)
            return problem((status, name), detail, **extra)
    return problem(INTERNAL_ERROR, "an error inside the service; its log says more")


def invalid_request(details: Sequence[Any], *, skip: int = 0, item: str = "body") -> Problem:
    """pydantic's errors as one problem. Field names leave out the first `skip` parts of a location; an error of the
    whole is reported for `item`."""
    listed = [
        FieldError(field=_field(error["loc"][skip:]) or item, message=_message(error))
        for error in details[:_MOST_ERRORS]
    ]
    detail = "; ".join(f"{error.field}: {error.message}" for error in listed[:5])
    if len(details) > 5:
        detail += f"; and {len(details) - 5} more"
    return problem(INVALID_REQUEST, detail, errors=[error.model_dump() for error in listed])


def invalid_field(field: str, message: str) -> Problem:
    """The problem of one invalid field of a body."""
    return invalid_request([{"type": "invalid", "loc": (field,), "msg": message, "input": {}}])


def response(problem: Problem, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The HTTP response of a problem, with Retry-After if it has one."""
    headers = dict(headers or {})
    if "retry_after" in (problem.model_extra or {}):
        headers["Retry-After"] = str((problem.model_extra or {})["retry_after"])
    body = problem.model_dump(mode="json", exclude_unset=True)
    current_id = request_id.get()
    if current_id is not None:
        body["request_id"] = current_id
    return JSONResponse(body, problem.status, headers, media_type=CONTENT_TYPE)


def install(
    app: FastAPI, count: Callable[[Problem], None], headers: Callable[[Scope], list[tuple[bytes, bytes]]]
) -> None:
    """Installs handlers that answer every error, FastAPI's own included, with a problem; calls `count` with each.

    `headers` gives those that the middleware would add to the answer to an unexpected error, which bypasses it.
    """

    def answered(problem: Problem) -> JSONResponse:
        count(problem)
        return response(problem)

    async def ours(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, MovemaskError)
        problem = problem_of(error)
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, CapacityError):
            log.error("%s %s: %s: %s", request.method, request.url.path, type(error).__name__, error)
        return answered(problem)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return answered(invalid_request(error.errors(), skip=1))

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        if isinstance(error, ProblemError):
            return answered(error.problem)
        status = HTTPStatus(error.status_code)
        detail = f"{request.method} {request.url.path}: {status.phrase}"
        answer = answered(problem((status, status.phrase.lower().replace(" ", "-")), detail))
        answer.headers.update(error.headers or {})
        if answer.headers.get("Allow") == "GET":  # the first route of the path; `Router` has one for HEAD too
            answer.headers["Allow"] = "GET, HEAD"
        return answer

    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        answer = answered(problem(INTERNAL_ERROR, "an error inside the service; its log says more"))
        current_id = request_id.get()
        if current_id is not None:
            answer.headers["X-Request-ID"] = current_id
        answer.raw_headers += headers(request.scope)
        return answer

    app.add_exception_handler(MovemaskError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unexpected)


def _field(location: Sequence[Any]) -> str:
    name = ""
    for part in location:
        name += f"[{part}]" if isinstance(part, int) else f".{shown(part)}" if name else shown(part)
    return name


def _message(error: Any) -> str:
    """pydantic's message with the offending input, shortened."""
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
