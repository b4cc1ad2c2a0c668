"""Errors as problems (RFC 9457, `application/problem+json`), and the table of their statuses."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any, get_args

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from movemask.board.fen import MOVES_HINT, looks_like_moves
from movemask.errors import (
    LONGEST_INPUT,
    CapacityError,
    LedgerError,
    LedgerUnreachable,
    LimitExceeded,
    MovemaskError,
    shown,
)
from movemask.schemas.answers import TYPE_PREFIX, ErrorOut, Problem
from movemask.schemas.shapes import as_json
from movemask.server.logs import request_id

log = logging.getLogger(__name__)

_Error, _Problem = as_json(ErrorOut), as_json(Problem)

CONTENT_TYPE = "application/problem+json"
SERVED_LEAKAGE = "served-leakage"

_UNPROCESSABLE = (
    "invalid-request invalid-fen invalid-position illegal-move unsupported-variant invalid-rule not-calibrated "
    "invalid-pgn unknown-kind invalid-parameter invalid-sweep invalid-audit limit-exceeded"
)

#: The status of each problem by its name. The problem of an error has the name of the error's class, or of the nearest
#: base class in this table: `InvalidFen` is an `invalid-fen`. Any other error is an `internal-error`.
STATUSES: dict[str, HTTPStatus] = {
    name: status
    for status, names in {
        HTTPStatus.BAD_REQUEST: "malformed-json malformed-path untrusted-host",
        HTTPStatus.UNAUTHORIZED: "unauthorized",
        HTTPStatus.FORBIDDEN: "forbidden cross-site",
        HTTPStatus.NOT_FOUND: "unknown-model",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "body-too-large",
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "unsupported-media-type",
        HTTPStatus.UNPROCESSABLE_ENTITY: _UNPROCESSABLE,
        HTTPStatus.TOO_MANY_REQUESTS: "rate-limited",
        HTTPStatus.INTERNAL_SERVER_ERROR: f"{SERVED_LEAKAGE} internal-error",
        HTTPStatus.BAD_GATEWAY: "model-error",
        HTTPStatus.SERVICE_UNAVAILABLE: "overloaded shutting-down model-unavailable ledger-unavailable not-ready",
    }.items()
    for name in names.split()
}

#: The messages of errors begin with the field at fault: `moves[3]: 'e2e4' is not legal`.
_NAMED = re.compile(r"(\w+(?:\[\w+\])?(?:\.\w+)*): ")

_NUMBER = re.compile(r"\s*[-+]?\d{1,20}(\.\d{0,20})?\s*", re.ASCII)
_MOST_ERRORS = 20

#: Messages of the JSON parser about JSON that is valid, in a reader's words.
_BOUNDS = {
    "recursion limit exceeded": "nested too deeply",
    "number out of range": "number out of range",
}

#: The form of its messages.
_AT = re.compile(r"(.*) at line (\d+) column (\d+)", re.DOTALL)

#: Most errors that pydantic may write out: a body of 2 MiB may hold hundreds of thousands.
_MOST_WRITTEN = 64

#: Errors of a request that get a suggestion. Finding the nearest name takes 0.1 ms.
_MOST_HINTS = 3


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the OpenAPI responses of these statuses.

    `HTTPStatus.phrase` is not the same on every Python.
    """
    content = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": "A problem; its `type` says which.", "content": content}
        for status in statuses
    }


class ProblemError(MovemaskError):
    """A problem of HTTP rather than of chess or a network."""

    def __init__(
        self, name: str, detail: str, headers: Mapping[str, str] | None = None, **extra: Any
    ) -> None:
        super().__init__(detail)
        self.problem, self.headers = problem(name, detail, **extra), headers


def problem(name: str, detail: str, *, status: int | None = None, **extra: Any) -> Problem:
    """Returns a problem by its name; `status` is needed for names that are not in STATUSES."""
    title = (
        name.replace("-", " ")
        .capitalize()
        .replace("fen", "FEN")
        .replace("json", "JSON")
        .replace("pgn", "PGN")
    )
    status = status or STATUSES[name].value
    named = (
        _NAMED.match(detail)
        if status == HTTPStatus.UNPROCESSABLE_ENTITY or name == "unknown-model"
        else None
    )
    if named and "errors" not in extra:
        extra["errors"] = [{"field": named[1], "message": detail[named.end() :]}]
    return Problem(type=TYPE_PREFIX + name, title=title, status=status, detail=detail, **extra)


def name_of(status: HTTPStatus) -> str:
    """Returns the name of a problem of HTTP alone: that of its status, such as `not-found`."""
    return status.phrase.lower().replace(" ", "-")


def problem_of(error: Exception) -> Problem:
    """Returns the problem that describes an error.

    The error's message is its `detail`, and the error's attributes are further fields.
    """
    if isinstance(error, ProblemError):
        return error.problem
    if isinstance(error, LedgerError):
        return problem(
            "ledger-unavailable", "the ledger cannot be read now; the service's log says why"
        )
    for error_class in type(error).__mro__:
        name = re.sub(r"\B(?=[A-Z])", "-", error_class.__name__).lower()
        if name in STATUSES:
            return problem(name, str(error), **vars(error))
    return problem("internal-error", "an error in the service; its log says more")


def ledger_unwritable(error: LedgerError) -> str:
    """Returns why the ledger is not written, without the addresses and paths of the driver's
    message.
    """
    if isinstance(error, LedgerUnreachable):
        return "the ledger cannot be written now: the database does not answer; the service's log says more"
    return "the ledger cannot be written now; the service's log says why"


def invalid_request(
    error: ValidationError | RequestValidationError,
    model: type[BaseModel] | None = None,
    *,
    item: str = "body",
) -> MovemaskError:
    """Returns pydantic's errors as one problem.

    model : the model that raised the errors, for suggestions of its field names
    item : the name of an error that concerns no single field
    """
    if isinstance(error, ValidationError):
        if error.error_count() > _MOST_WRITTEN:
            return LimitExceeded(
                f"{item}: {error.error_count()} errors, such as unknown fields; /docs has the fields"
            )
        # The input may be the whole body.
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            return ProblemError("malformed-json", f"{item}: {_json_fault(first['ctx']['error'])}")
        if first["type"] == "too_long":
            field = _field(first["loc"])
            length = first["ctx"]["actual_length"]
            most = first["ctx"]["max_length"]
            return LimitExceeded(
                f"{field}: {length} {first['loc'][-1]}; at most {most} are allowed"
            )
        details, skip = error.errors(include_url=False, include_context=False), 0
    else:
        details, skip = list(error.errors()), 1  # a parameter's place begins with `query` or `path`
    listed = [
        {
            "field": _field(detail["loc"][skip:]) or item,
            "message": _message(detail, model if place < _MOST_HINTS else None),
        }
        for place, detail in enumerate(details[:_MOST_ERRORS])
    ]
    detail = "; ".join(f"{error['field']}: {error['message']}" for error in listed[:5])
    if len(details) > 5:
        detail += f"; and {len(details) - 5} more"
    return ProblemError("invalid-request", detail, errors=listed)


def _json_fault(message: str) -> str:
    """Returns the parser's message in a reader's words, with line and column."""
    match = _AT.fullmatch(message)
    if match is None:
        return f"not valid JSON: {message}"
    reason, line, column = match.groups()
    place = f"(line {line}, column {column})"
    if reason in _BOUNDS:
        return f"{_BOUNDS[reason]} {place}"
    if reason.startswith("expected"):  # names of the parser's own, such as `ident`
        return f"not valid JSON {place}"
    return f"not valid JSON {place}: {'it ends too early' if reason.startswith('EOF') else reason}"


def invalid_field(field: str, message: str) -> ProblemError:
    """Returns the error of one invalid field of a body."""
    name = shown(field)
    return ProblemError(
        "invalid-request", f"{name}: {message}", errors=[{"field": name, "message": message}]
    )


def response(problem: Problem, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Returns the HTTP response of a problem, with Retry-After if it has one."""
    body = problem.model_dump(mode="json", exclude_unset=True)
    retry = {"Retry-After": str(body["retry_after"])} if "retry_after" in body else {}
    current_id = request_id.get()
    if current_id is not None:
        body["request_id"] = current_id
    return JSONResponse(body, problem.status, {**(headers or {}), **retry}, media_type=CONTENT_TYPE)


def response_to(error: Exception, count: Callable[[Problem], None]) -> JSONResponse:
    """Returns the HTTP response to an error; calls `count` with its problem."""
    problem = problem_of(error)
    count(problem)
    return response(problem, error.headers if isinstance(error, ProblemError) else None)


def item_error(error: MovemaskError, count: Callable[[Problem], None]) -> ErrorOut:
    """Takes the place of a failed item; calls `count` with its problem."""
    fields: dict[str, Any] = counted_problem(error, count).model_dump(
        mode="json", exclude_unset=True
    )
    return _Error(error=_Problem(**fields))


def counted_problem(error: MovemaskError, count: Callable[[Problem], None]) -> Problem:
    """Returns the problem of a failed item; calls `count` with it.

    A withheld answer is logged, as for a whole request.
    """
    problem = problem_of(error)
    count(problem)
    if problem.name == SERVED_LEAKAGE:
        log.error("%s: %s", type(error).__name__, error)
    return problem


def install_handlers(app: FastAPI, count: Callable[[Problem], None]) -> None:
    """Installs handlers that respond with a problem to expected errors, FastAPI's included.

    They call `count` with each problem. `Edge` responds to all other errors.
    """

    async def expected(http: Request, error: Exception) -> Response:
        request = f"{http.method} {http.url.path}"
        if isinstance(error, RequestValidationError):
            error = invalid_request(error)
        elif isinstance(error, HTTPException):
            status, own, next_step = HTTPStatus(error.status_code), dict(error.headers or {}), ""
            if status == HTTPStatus.METHOD_NOT_ALLOWED:
                methods = _methods(http)
                own["Allow"] = ", ".join(
                    [*sorted({*methods, "HEAD"} if "GET" in methods else methods), "OPTIONS"]
                )
                if http.method == "OPTIONS":
                    return Response(status_code=HTTPStatus.NO_CONTENT, headers=own)
                next_step = f"; use {' or '.join(methods)}"
            elif status == HTTPStatus.NOT_FOUND:
                next_step = _nearest(http)
            error = ProblemError(
                name_of(status), f"{request}: {status.phrase}{next_step}", own, status=status
            )
        as_problem = response_to(error, count)
        if as_problem.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(
            error, CapacityError
        ):
            log.error("%s: %s: %s", request, type(error).__name__, error)
        return as_problem

    for error_class in (MovemaskError, RequestValidationError, HTTPException):
        app.add_exception_handler(error_class, expected)


def _methods(http: Request) -> list[str]:
    """Returns the methods of all routes of a path, without HEAD."""
    path = getattr(http.scope.get("route"), "path", http.scope["path"])
    routes = [route for route in http.app.routes if route.path == path]
    return sorted({method for route in routes for method in route.methods} - {"HEAD"})


def _nearest(http: Request) -> str:
    """Returns what to do after a wrong path: the nearest path."""
    root_path = http.scope.get("root_path", "")
    path = http.scope["path"].removeprefix(root_path)
    if root_path and path.startswith(f"{root_path}/"):
        return f"; the proxy has to take the prefix {root_path} off (docs/settings.md)"
    paths = [route.path for route in http.app.routes if route.path != "/"]
    near = get_close_matches(path[:LONGEST_INPUT].lower().rstrip("/"), paths, 1)
    return (
        f"; did you mean {root_path + near[0]!r}?"
        if near
        else f"; {root_path}/docs lists the paths"
    )


def _field(location: Sequence[Any]) -> str:
    name = ""
    for part in location:
        name += f"[{part}]" if isinstance(part, int) else f".{shown(part)}" if name else shown(part)
    return name


def near_or_all(name: str, known: Sequence[str]) -> str:
    """Returns a suggestion for an unknown name: the nearest known name, or else all known names."""
    if name in ("rating", "ratings") and name not in known and "elo" in known:
        return "did you mean 'elo'?"
    near = get_close_matches(name[:LONGEST_INPUT].lower(), known, 1)
    return f"did you mean {near[0]!r}?" if near else f"available: {', '.join(known) or 'none'}"


def _message(error: Any, model: type[BaseModel] | None) -> str:
    """Returns pydantic's message, with the offending input shortened."""
    if error["type"] == "missing":
        return "is missing"
    if error["type"] == "extra_forbidden":
        *path, name = error["loc"]
        known = _fields_at(path, model)
        return f"no such field ({near_or_all(str(name), known)})" if known else "no such field"
    if error["type"] == "too_short":
        return "is empty"
    if error["type"] == "model_type":  # pydantic's message would name the class
        error = {**error, "msg": "Input should be an object"}
    if error["type"] == "string_pattern_mismatch":  # pydantic's message would show the pattern
        error = {**error, "msg": "has another form"}
    message = str(error["msg"]).removeprefix("Value error, ")
    value = error.get("input")
    if isinstance(value, str | int | float | bool) or value is None:
        message += f", got {shown(json.dumps(value) if value is None or isinstance(value, bool) else repr(value))}"
    return message + _correction(error, model) if isinstance(value, str) else message


def _correction(error: Any, model: type[BaseModel] | None) -> str:
    """Returns how to correct a text in a field of another type, and moves in the field of a FEN.

    Empty without a suggestion.
    """
    kind, field, value = error["type"], error["loc"][-1:], error["input"]
    if kind in ("float_type", "int_type", "value_error") and _NUMBER.fullmatch(value):
        return "; write a number without quotation marks"
    if kind == "list_type" and field == ("moves",):
        return '; send a list, such as ["e4", "e5"]'
    if kind == "model_type" and field == () and model is not None and "fen" in model.model_fields:
        return '; send an object, such as {"fen": "startpos"}'
    if kind == "string_too_long" and field == ("fen",) and looks_like_moves(value):
        return MOVES_HINT
    if kind == "string_pattern_mismatch" and field == ("cursor",):
        return "; use `next` of the previous page"
    return ""


def _fields_at(path: Sequence[Any], model: type[BaseModel] | None) -> list[str]:
    """Returns the names of the fields of the object at `path` in a body of this model.

    Empty if the object is no model.
    """
    for part in path:
        if model is None or not isinstance(part, str):  # the place in a list
            continue
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        model = _model_in(fields[part].annotation) if part in fields else None
    return (
        [] if model is None else [field.alias or name for name, field in model.model_fields.items()]
    )


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Returns the first model in an annotation, such as that of the items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
