"""`read_body` and `parsed`: a request's body, bounded before it is parsed, so that a hostile body costs little."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from anyio import to_thread
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movemask.errors import LimitExceeded
from movemask.server import problems
from movemask.server.context import context_of
from movemask.server.problems import ProblemError, shown
from movemask.server.requests import MAX_PGN, MAX_SLOTS
from movemask.server.settings import Settings
from movemask.server.state import Services

M = TypeVar("M", bound=BaseModel)

#: Largest body, in bytes, that is parsed on the event loop. Parsing it takes less than a millisecond.
SMALL_BODY = 8_192

#: Largest total number of moves in the positions of a batch. Playing a move takes about 20 µs.
MAX_PLIES = 65_536

_FIELDS = 4_096  # bytes of all fields except lists, with room to spare
_MOVE = 32  # bytes of a UCI move, quotes, separator and indentation
_NUMBER = 48  # bytes of a float64 in full, with its move as key, quotes, separator and indentation
_NAME = 256  # bytes of a model's name, or of a rating
_GZIP = 31  # zlib's name for gzip with the largest window
_UNPACKED = 65_536  # bytes of a gzipped body that are unpacked at once
_ESCAPED = 6  # bytes of a character as \uXXXX
_VALUES = 64  # values, containers and fields of one request or position, with room to spare

#: A string, or a character that is counted outside strings. Linear time: a string without an end takes the whole rest.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[,{\[]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The most that a body may hold."""

    size: int  # bytes
    values: int | None = None  # counted by commas; None: as many as the bytes allow
    containers: int = _VALUES  # objects and arrays, counted by opening brackets
    fields: int = _VALUES  # of one object


def position_limits(settings: Settings) -> BodyLimits:
    """Limits for one position."""
    return BodyLimits(_FIELDS + _MOVE * settings.max_moves)


def batch_limits(settings: Settings) -> BodyLimits:
    """Limits for a batch of positions."""
    most = 1 + settings.max_positions
    values = most * _VALUES
    return BodyLimits(most * position_limits(settings).size, values + MAX_PLIES, containers=values)


def sweep_limits(settings: Settings) -> BodyLimits:
    """Limits for one position and its ratings or models."""
    return BodyLimits(position_limits(settings).size + _NAME * settings.max_positions)


def games_limits(settings: Settings) -> BodyLimits:
    """Limits for a PGN with every character escaped."""
    return BodyLimits(_FIELDS + _ESCAPED * MAX_PGN, values=_VALUES)


def audit_limits(settings: Settings) -> BodyLimits:
    """Limits for one number for each slot."""
    return BodyLimits(position_limits(settings).size + _NUMBER * MAX_SLOTS, fields=MAX_SLOTS)


def mcp_limits(settings: Settings) -> BodyLimits:
    """Limits for a call of any MCP tool."""
    values = MAX_SLOTS + settings.max_moves + settings.max_positions + _VALUES
    return BodyLimits(_FIELDS + max(games_limits(settings).size, audit_limits(settings).size), values, fields=MAX_SLOTS)


class Bounded:
    """ASGI app that passes requests on whose body is within `limits`, as `PostRoute` does."""

    def __init__(self, app: ASGIApp, limits: Callable[[Settings], BodyLimits]) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        services: Services = scope["app"].state.services
        limits = self._limits(services.settings)
        body = await read_body(Request(scope, receive), limits, services.settings)
        await to_thread.run_sync(_decoded, body, limits, limiter=services.parsing)
        messages: list[Message] = [{"type": "http.request", "body": body}]

        async def read() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, read, send)


async def read_body(http: Request, limits: BodyLimits, settings: Settings) -> bytes:
    """The body. Raises ProblemError: 415 if it is not sent as JSON, 413 as soon as the limit is passed."""
    limit = min(limits.size, settings.max_body_bytes)
    media_type = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    coding = http.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip"):
        fault = f"Content-Encoding is {shown(coding)!r}; send the body with gzip, or as it is"
        raise ProblemError("unsupported-media-type", fault, {"Accept-Encoding": "gzip"})
    length = http.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise _too_large(f"{length} bytes", limit, settings)
    main, _, subtype = media_type.partition("/")
    if main != "application" or not (subtype == "json" or subtype.endswith("+json")):
        fault = f"is {media_type!r}" if media_type else "is missing"
        fault = f"Content-Type {fault}; send the body with Content-Type: application/json"
        raise ProblemError("unsupported-media-type", fault)
    parts = [part async for part in _within(http.stream(), limit, settings)]
    if coding == "gzip":
        parts = [part async for part in _within(_unpacked(http, parts), limit, settings)]
    return b"".join(parts)


async def _within(stream: AsyncIterator[bytes], limit: int, settings: Settings) -> AsyncIterator[bytes]:
    """The parts of a body; raises ProblemError as soon as they exceed the limit."""
    size = 0
    async for part in stream:
        size += len(part)
        if size > limit:
            raise _too_large(f"over {limit} bytes", limit, settings)
        yield part


async def _unpacked(http: Request, packed: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The parts of a gzipped body, unpacked. They count as bytes in flight. They are small, so that a body that is too
    large is refused early. Raises ProblemError if the data are not gzip, and Overloaded."""
    unpacking = zlib.decompressobj(wbits=_GZIP)
    try:
        for rest in packed:
            while True:
                part = unpacking.decompress(rest, _UNPACKED)
                context_of(http.scope).hold(len(part))
                yield part
                await asyncio.sleep(0)  # others take their turn
                rest = unpacking.unconsumed_tail
                if not rest and len(part) < _UNPACKED:
                    break
    except zlib.error:
        raise ProblemError("malformed-json", "body: is not gzip, as Content-Encoding says") from None
    if not unpacking.eof or unpacking.unused_data:
        fault = "is followed by other data" if unpacking.eof else "is cut off"
        raise ProblemError("malformed-json", f"body: the gzip data {fault}")


def _too_large(size: str, limit: int, settings: Settings) -> ProblemError:
    why = "MOVEMASK_MAX_BODY_BYTES" if limit == settings.max_body_bytes else "what a request of this route can need"
    return ProblemError("body-too-large", f"body: {size}; at most {limit} are allowed ({why})")


def parsed(body: bytes, model: type[M], limits: BodyLimits, settings: Settings) -> M:
    """The validated body. Raises ProblemError if it is not JSON or does not fit the model, LimitExceeded if it has too
    many items. Only the first error of each list is reported."""
    try:
        return model.model_validate(_decoded(body, limits), context=settings)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        raise problems.invalid_request(details, model) from None


def _count(body: bytes, characters: bytes, what: str, most: int) -> None:
    """Raises LimitExceeded if there are more than `most` of these characters outside strings."""
    count = sum(map(body.count, characters))
    if count > most and b"\0" not in body:  # not UTF-16 or UTF-32, whose strings end elsewhere
        outside = (token for token in _TOKEN.finditer(body) if body[token.start()] in characters)
        count = sum(1 for _ in islice(outside, most + 1))
    if count > most:
        raise LimitExceeded(f"body: more than {most} {what}; send fewer at once")


def _decoded(body: bytes, limits: BodyLimits) -> Any:
    """The JSON of a body. Raises LimitExceeded before parsing if it holds too much, ProblemError if it is invalid."""
    _count(body, b",", "values", limits.size if limits.values is None else limits.values)
    _count(body, b"{[", "objects and arrays", limits.containers)
    if not body:
        raise problems.invalid_field("body", "is missing; send a JSON object")
    try:
        return json.loads(body, object_pairs_hook=partial(_object, limits.fields))
    except json.JSONDecodeError as error:
        fault = f"{error.msg} at character {error.pos}"
    except RecursionError:
        fault = "nested too deeply"
    except UnicodeDecodeError as error:
        fault = f"is not UTF-8: byte {error.object[error.start]:#04x} at {error.start}; send UTF-8"
    except ValueError:
        fault = "holds a number of more than 4,300 digits"
    raise ProblemError("malformed-json", f"body: {fault}")


def _object(most: int, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object with at most `most` fields. A repeated field becomes `REPEATED`: either value might be meant."""
    if len(pairs) > most:
        raise LimitExceeded(f"body: an object of {len(pairs)} fields; at most {most} are allowed")
    fields = dict(pairs)
    if len(fields) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        fields |= {name: problems.REPEATED for name, count in counts.items() if count > 1}
    return fields
