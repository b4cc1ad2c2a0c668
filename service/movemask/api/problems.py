"""Errors as RFC 9457 `application/problem+json`: the one table of which error is which status and type."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from movemask import errors
from movemask.errors import CapacityError, InvalidPosition, MovemaskError
from movemask.logs import request_id

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:movemask:problem:"

SERVED_LEAKAGE = "served-leakage"

#: Error class → status and name, most special first. What is not here is a 500 `internal-error`.
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
    (errors.InvalidAudit, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-audit"),
    (errors.LimitExceeded, HTTPStatus.UNPROCESSABLE_ENTITY, "limit-exceeded"),
    (errors.Overloaded, HTTPStatus.SERVICE_UNAVAILABLE, "overloaded"),
    (errors.ShuttingDown, HTTPStatus.SERVICE_UNAVAILABLE, "shutting-down"),
    (errors.ModelUnavailable, HTTPStatus.SERVICE_UNAVAILABLE, "model-unavailable"),
    (errors.ModelError, HTTPStatus.BAD_GATEWAY, "model-error"),
    (errors.ServedLeakage, HTTPStatus.INTERNAL_SERVER_ERROR, SERVED_LEAKAGE),
    (errors.StoreError, HTTPStatus.SERVICE_UNAVAILABLE, "audit-unavailable"),
)

#: Problems that are not an error class of ours.
MALFORMED_JSON = (HTTPStatus.BAD_REQUEST, "malformed-json")
INVALID_REQUEST = (HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-request")
BODY_TOO_LARGE = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body-too-large")
UNSUPPORTED_MEDIA_TYPE = (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type")
INTERNAL_ERROR = (HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error")
NOT_READY = (HTTPStatus.SERVICE_UNAVAILABLE, "not-ready")

_LONGEST_INPUT = 80
_MOST_ERRORS = 20

_DESCRIPTIONS = {
    400: "The body is not JSON.",
    404: "No such model.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    422: "A position, move, field or parameter is at fault; `detail` names it.",
    502: "The network gave logits from which no distribution can be made.",
    503: "Not now: no room, stopping, the model failed its check, or the audit cannot be read. See Retry-After.",
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's word for problems of these statuses."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {status: {"description": _DESCRIPTIONS[status], "content": {CONTENT_TYPE: schema}} for status in statuses}


class FieldError(BaseModel):
    """One field of the body or query that is wrong."""

    field: str
    message: str


class Problem(BaseModel):
    """RFC 9457 problem details. `type` is stable; `detail` names the offending input."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=[TYPE_PREFIX + "invalid-fen"])
    title: str = Field(examples=["Invalid FEN"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["fen: 'x y z' is cut short: no en-passant square"])
    request_id: str | None = Field(None, description="As in X-Request-ID and in the log; not of an item of a batch.")

    @property
    def name(self) -> str:
        """The last part of `type`."""
        return self.type.removeprefix(TYPE_PREFIX)


class ProblemError(HTTPException):
    """A problem that is found before a route is reached; an HTTPException, so that FastAPI lets it pass."""

    def __init__(self, found: Problem) -> None:
        super().__init__(found.status)
        self.problem = found


def problem(kind: tuple[HTTPStatus, str], detail: str, **extra: Any) -> Problem:
    """A problem of the given status and name."""
    status, name = kind
    title = name.replace("-", " ").capitalize().replace("fen", "FEN").replace("json", "JSON")
    return Problem(type=TYPE_PREFIX + name, title=title, status=status.value, detail=detail, **extra)


def problem_of(error: MovemaskError) -> Problem:
    """The problem that an error of ours is."""
    for kind, status, name in TABLE:
        if isinstance(error, kind):
            extra: dict[str, Any] = {}
            if isinstance(error, InvalidPosition):
                extra["statuses"] = list(error.statuses)
            if isinstance(error, CapacityError):
                extra["retry_after"] = error.retry_after
            return problem((status, name), str(error), **extra)
    return problem(INTERNAL_ERROR, "an error inside the service; its log says more")


def invalid_request(found: Sequence[Any], *, skip: int = 0, item: str = "body") -> Problem:
    """pydantic's errors as one problem; the first `skip` parts of each location are left out of the field's name, and
    what is wrong with the whole is said of `item`."""
    listed = [
        FieldError(field=_field(error["loc"][skip:]) or item, message=_message(error)) for error in found[:_MOST_ERRORS]
    ]
    detail = "; ".join(f"{error.field}: {error.message}" for error in listed[:5])
    if len(found) > 5:
        detail += f"; and {len(found) - 5} more"
    return problem(INVALID_REQUEST, detail, errors=[error.model_dump() for error in listed])


def invalid_field(field: str, message: str) -> Problem:
    """The problem of one field of a body."""
    return invalid_request([{"type": "invalid", "loc": (field,), "msg": message, "input": {}}])


def response(found: Problem) -> JSONResponse:
    """The HTTP response of a problem, with Retry-After where it has one."""
    headers = {}
    if "retry_after" in (found.model_extra or {}):
        headers["Retry-After"] = str((found.model_extra or {})["retry_after"])
    body = found.model_dump(mode="json", exclude_unset=True)
    under_way = request_id.get()
    if under_way is not None:
        body["request_id"] = under_way
    return JSONResponse(body, found.status, headers, media_type=CONTENT_TYPE)


def install(app: FastAPI, count: Callable[[Problem], None]) -> None:
    """Makes every error of the app a problem, FastAPI's own included; `count` is told of each."""

    def answered(found: Problem) -> JSONResponse:
        count(found)
        return response(found)

    async def ours(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, MovemaskError)
        found = problem_of(error)
        if found.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, CapacityError):
            log.error("%s %s: %s: %s", request.method, request.url.path, type(error).__name__, error)
        return answered(found)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        found = error.errors()
        if found and found[0]["type"] == "json_invalid":
            reason = found[0].get("ctx", {}).get("error", "not JSON")
            return answered(problem(MALFORMED_JSON, f"body: {reason} at character {found[0]['loc'][-1]}"))
        return answered(invalid_request(found, skip=1))

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        if isinstance(error, ProblemError):
            return answered(error.problem)
        status = HTTPStatus(error.status_code)
        if status is HTTPStatus.BAD_REQUEST:  # FastAPI's word for a body that json cannot even begin to read
            return answered(problem(MALFORMED_JSON, "body: cannot be read as JSON"))
        detail = f"{request.method} {request.url.path}: {status.phrase}"
        found = answered(problem((status, status.phrase.lower().replace(" ", "-")), detail))
        found.headers.update(error.headers or {})
        return found

    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        told = answered(problem(INTERNAL_ERROR, "an error inside the service; its log says more"))
        under_way = request_id.get()
        if under_way is not None:  # it is answered outside the middleware that sets the header
            told.headers["X-Request-ID"] = under_way
        return told

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
    """pydantic's message with what was given, cut to a length that a log can bear."""
    if error["type"] == "missing":
        return "is missing"
    if error["type"] == "extra_forbidden":
        return "no such field"
    if error["type"] == "model_type":  # pydantic's words name a class of ours
        error = {**error, "msg": "Input should be an object"}
    message = str(error["msg"]).removeprefix("Value error, ")
    given = error.get("input")
    if isinstance(given, str | int | float | bool) or given is None:
        message += f", got {shown(json.dumps(given) if given is None or isinstance(given, bool) else repr(given))}"
    return message


def shown(text: str) -> str:
    """A client's text, cut to a length that a log can bear, and with nothing that cannot be written as UTF-8."""
    cut = text if len(text) <= _LONGEST_INPUT else text[:_LONGEST_INPUT] + "…"
    return cut.encode("utf-8", "backslashreplace").decode()
