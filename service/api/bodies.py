"""A request's body → its model. What it holds is counted first, so that rubbish is refused before it is validated."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from service.api import problems
from service.api.problems import ProblemError
from service.errors import LimitExceeded
from service.settings import Settings

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a body may hold: its bytes; its values and its objects and arrays, None where text may look like them.

    Values are counted by their commas and containers by their brackets, those in strings included.
    """

    size: int
    values: int | None = None
    containers: int | None = None


_FIELDS = 4_096  # bytes of all fields but the lists, generously
_MOVE = 32  # bytes of a UCI move, quotes, separator and indentation
_NUMBER = 48  # bytes of a float64 written in full, with its move as key and the same around it
_ESCAPED = 6  # bytes of a character as \uXXXX
_VALUES = 64  # values, or objects and arrays, of one request or position, generously

#: Limits of what models hold, which the schemas share.
MAX_PGN = 500_000
MAX_SLOTS = 8_192  # no vocabulary is larger


def position_limits(settings: Settings) -> BodyLimits:
    """What one position needs."""
    size = _FIELDS + _MOVE * settings.max_moves
    return BodyLimits(min(settings.max_body_bytes, size), containers=_VALUES)


def batch_limits(settings: Settings) -> BodyLimits:
    """What a batch of positions needs."""
    most = 1 + settings.max_positions
    size = most * (_FIELDS + _MOVE * settings.max_moves)
    values = most * (_VALUES + settings.max_moves)
    return BodyLimits(min(settings.max_body_bytes, size), values, containers=most * _VALUES)


def games_limits(settings: Settings) -> BodyLimits:
    """What a PGN needs, every character of it escaped. Commas and brackets are part of one."""
    return BodyLimits(min(settings.max_body_bytes, _FIELDS + _ESCAPED * MAX_PGN))


def audit_limits(settings: Settings) -> BodyLimits:
    """What a number for every slot needs."""
    size = _FIELDS + _MOVE * settings.max_moves + _NUMBER * MAX_SLOTS
    return BodyLimits(min(settings.max_body_bytes, size), containers=_VALUES)


def read(body: bytes, model: type[M], limits: BodyLimits, settings: Settings) -> M:
    """The model of a body. Raises ProblemError for what is no JSON or does not fit the model, LimitExceeded for more
    items than are taken; a list's errors end with its first."""
    _count("values", body.count(b","), limits.values)
    _count("objects and arrays", body.count(b"{") + body.count(b"["), limits.containers)
    if not body:
        raise ProblemError(problems.invalid_field("body", "is missing"))
    try:
        return model.model_validate(_decoded(body), context=settings)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        raise ProblemError(problems.invalid_request(found)) from None


def _count(what: str, found: int, most: int | None) -> None:
    if most is not None and found > most:
        raise LimitExceeded(f"body: {found} {what}, at most {most} are taken; send fewer at once")


def _decoded(body: bytes) -> Any:
    try:
        return _DECODER.decode(body.decode(json.detect_encoding(body), "surrogatepass"))
    except json.JSONDecodeError as error:
        fault = f"{error.msg} at character {error.pos}"
    except RecursionError:
        fault = "nested too deeply"
    except ValueError:  # not text, or a number of thousands of digits
        fault = "cannot be read as JSON"
    raise ProblemError(problems.problem(problems.MALFORMED_JSON, f"body: {fault}"))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, no field of which is given twice: which of the two was meant is anybody's guess."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ProblemError(problems.invalid_field(name, "is given twice"))
            seen.add(name)
    if len(found) > MAX_SLOTS:
        raise LimitExceeded(f"body: an object of {len(found)} fields, at most {MAX_SLOTS} are taken")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
