"""Parses request bodies. Sizes are counted first, so that a hostile body is refused before it is validated."""

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


_FIELDS = 4_096  # bytes of all fields except lists, with room to spare
_MOVE = 32  # bytes of a UCI move, quotes, separator and indentation
_NUMBER = 48  # bytes of a float64 in full, with its move as key, quotes, separator and indentation
_NAME = 256  # bytes of a model's name, or of a rating
_ESCAPED = 6  # bytes of a character as \uXXXX
_VALUES = 64  # values, containers and fields of one request or position, with room to spare

#: Limits that the schemas share.
MAX_PGN = 500_000
MAX_SLOTS = 8_192  # no vocabulary is larger


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The most that a body may hold: bytes, values (counted by commas, which are bytes too), containers (counted by
    brackets, those in strings included) and fields of one object."""

    size: int
    values: int | None = None
    containers: int = _VALUES
    fields: int = _VALUES


def position_limits(settings: Settings) -> BodyLimits:
    """Limits for one position."""
    return BodyLimits(_FIELDS + _MOVE * settings.max_moves)


def batch_limits(settings: Settings) -> BodyLimits:
    """Limits for a batch of positions."""
    most = 1 + settings.max_positions
    values = most * _VALUES
    return BodyLimits(most * position_limits(settings).size, values + settings.max_plies, containers=values)


def sweep_limits(settings: Settings) -> BodyLimits:
    """Limits for one position and its ratings or models."""
    return BodyLimits(position_limits(settings).size + _NAME * settings.max_positions)


def games_limits(settings: Settings) -> BodyLimits:
    """Limits for a PGN with every character escaped. Its own commas and brackets count: with clock times in comments,
    one character in ten."""
    return BodyLimits(_FIELDS + _ESCAPED * MAX_PGN, values=MAX_PGN // 4, containers=MAX_PGN // 4)


def audit_limits(settings: Settings) -> BodyLimits:
    """Limits for a number per slot."""
    return BodyLimits(position_limits(settings).size + _NUMBER * MAX_SLOTS, fields=MAX_SLOTS)


def read(body: bytes, model: type[M], limits: BodyLimits, settings: Settings) -> M:
    """The validated body. Raises ProblemError for invalid JSON or a body that does not fit the model, LimitExceeded
    for too many items. Only the first error of each list is reported."""
    _count("values", body.count(b","), limits.size if limits.values is None else limits.values)
    _count("objects and arrays", body.count(b"{") + body.count(b"["), limits.containers)
    if not body:
        raise problems.invalid_field("body", "is missing")
    try:
        return model.model_validate(_decoded(body, limits.fields), context=settings)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        raise problems.invalid_request(details) from None


def _count(what: str, count: int, most: int) -> None:
    if count > most:
        raise LimitExceeded(f"body: {count} {what}, at most {most} are taken; send fewer at once")


def _decoded(body: bytes, fields: int) -> Any:
    try:
        return json.loads(body, object_pairs_hook=partial(_object, fields))
    except json.JSONDecodeError as error:
        fault = f"{error.msg} at character {error.pos}"
    except RecursionError:
        fault = "nested too deeply"
    except ValueError:  # not text, or a number of thousands of digits
        fault = "cannot be read as JSON"
    raise ProblemError("malformed-json", f"body: {fault}")


def _object(most: int, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object with at most `most` fields. A repeated field is refused, since either value might be meant."""
    if len(pairs) > most:
        raise LimitExceeded(f"body: an object of {len(pairs)} fields, at most {most} are taken")
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise problems.invalid_field(name, "is given twice")
            seen.add(name)
    return fields
