"""A request's body → its model. What it holds is counted first, so that rubbish is refused before it is validated."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from movemask.api import problems
from movemask.api.problems import ProblemError
from movemask.errors import LimitExceeded
from movemask.settings import Settings

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a body may hold: bytes; values, counted by commas; objects and arrays, counted by brackets, those
    in strings included; and fields of one object."""

    size: int
    values: int
    containers: int
    fields: int


_FIELDS = 4_096  # bytes of all fields but the lists, generously
_MOVE = 32  # bytes of a UCI move, quotes, separator and indentation
_NUMBER = 48  # bytes of a float64 written in full, with its move as key and the same around it
_ESCAPED = 6  # bytes of a character as \uXXXX
_VALUES = 64  # values, objects and arrays, and fields of one request or position, generously

#: Limits of what models hold, which the schemas share.
MAX_PGN = 500_000
MAX_SLOTS = 8_192  # no vocabulary is larger


def position_limits(settings: Settings) -> BodyLimits:
    """What one position needs."""
    size = _FIELDS + _MOVE * settings.max_moves
    return BodyLimits(min(settings.max_body_bytes, size), values=size, containers=_VALUES, fields=_VALUES)


def batch_limits(settings: Settings) -> BodyLimits:
    """What a batch of positions needs."""
    most = 1 + settings.max_positions
    size = most * (_FIELDS + _MOVE * settings.max_moves)
    values = most * _VALUES + settings.max_plies
    return BodyLimits(min(settings.max_body_bytes, size), values, containers=most * _VALUES, fields=_VALUES)


def games_limits(settings: Settings) -> BodyLimits:
    """What a PGN needs, every character of it escaped. It has commas and brackets of its own: clock times in comments
    come to one in ten characters."""
    size = _FIELDS + _ESCAPED * MAX_PGN
    return BodyLimits(min(settings.max_body_bytes, size), values=MAX_PGN // 4, containers=MAX_PGN // 4, fields=_VALUES)


def audit_limits(settings: Settings) -> BodyLimits:
    """What a number for every slot needs."""
    size = _FIELDS + _MOVE * settings.max_moves + _NUMBER * MAX_SLOTS
    return BodyLimits(min(settings.max_body_bytes, size), values=size, containers=_VALUES, fields=MAX_SLOTS)


def read(body: bytes, model: type[M], limits: BodyLimits, settings: Settings) -> M:
    """The model of a body. Raises ProblemError for what is no JSON or does not fit the model, LimitExceeded for more
    items than are taken; a list's errors end with its first."""
    _count("values", body.count(b","), limits.values)
    _count("objects and arrays", body.count(b"{") + body.count(b"["), limits.containers)
    if not body:
        raise ProblemError(problems.invalid_field("body", "is missing"))
    try:
        return model.model_validate(_decoded(body, limits.fields), context=settings)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        raise ProblemError(problems.invalid_request(found)) from None


def _count(what: str, found: int, most: int) -> None:
    if found > most:
        raise LimitExceeded(f"body: {found} {what}, at most {most} are taken; send fewer at once")


def _decoded(body: bytes, fields: int) -> Any:
    try:
        return json.JSONDecoder(object_pairs_hook=partial(_object, fields)).decode(
            body.decode(json.detect_encoding(body), "surrogatepass")
        )
    except json.JSONDecodeError as error:
        fault = f"{error.msg} at character {error.pos}"
    except RecursionError:
        fault = "nested too deeply"
    except ValueError:  # not text, or a number of thousands of digits
        fault = "cannot be read as JSON"
    raise ProblemError(problems.problem(problems.MALFORMED_JSON, f"body: {fault}"))


def _object(most: int, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of at most so many fields, none given twice: which of the two was meant is anybody's guess."""
    if len(pairs) > most:
        raise LimitExceeded(f"body: an object of {len(pairs)} fields, at most {most} are taken")
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ProblemError(problems.invalid_field(name, "is given twice"))
            seen.add(name)
    return found
