"""How routes are declared, and how bodies are read: `Router`, and `PostRoute`, which FastAPI only documents.

Sizes are counted before a body is parsed, so that a hostile body is refused first. It is parsed and validated once, off
the event loop if it is large.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast, get_type_hints

from anyio import to_thread
from fastapi import APIRouter, FastAPI, Request, Response, Security, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movemask.api import problems
from movemask.api.context import context_of
from movemask.api.prefix import whole_path
from movemask.api.problems import ProblemError, shown
from movemask.api.requests import MAX_PGN, MAX_SLOTS
from movemask.api.state import Services
from movemask.errors import InvalidParameter, LimitExceeded
from movemask.settings import Settings

log = logging.getLogger(__name__)

E = TypeVar("E", bound=Callable[..., Any])

#: The endpoint of a POST route: body, HTTP request and services → response.
Endpoint = Callable[[Any, Request, Services], Awaitable[Response]]

#: Bytes of an answer from which on it is compressed, and a length for what is streamed.
COMPRESSED = 16_384
_STREAMED = range(COMPRESSED)

Handler = Callable[[Request, Exception], Awaitable[Response]]

#: Documents how keys are sent; `authenticate` checks them.
BEARER = Security(HTTPBearer(auto_error=False, description="An API key, if the service has any."))


def operation_id(route: APIRoute) -> str:
    """The path in camel case: `/v1/policy/batch` → `policyBatch`, `/v1/models/{name}` → `model`."""
    parts = [part for part in route.path.split("/") if part not in ("", "v1")]
    if parts and parts[-1].startswith("{"):
        parts = [*parts[:-2], re.sub("ies$", "y", parts[-2]).removesuffix("s")]
    first, *rest = parts or ["root"]
    return first + "".join(part.capitalize() for part in rest)


async def known_parameters(http: Request) -> None:
    """Refuses query parameters that the route does not take, as a POST route takes none, or that are repeated; raises
    InvalidParameter."""
    route = http.scope["route"]
    if not http.query_params or route.path == "/":  # a link to the page may have been decorated on its way
        return
    fields = get_flat_params(route.dependant)
    known = [field.alias for field in fields if isinstance(field.field_info, params.Query)]
    names = [name for name, _ in http.query_params.multi_items()]
    for name in names:
        if name not in known:
            near = get_close_matches(name[:40].lower(), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"available: {', '.join(known) or 'none'}"
            raise InvalidParameter(f"{shown(name)}: {http.url.path} has no such query parameter; {hint}")
        if names.count(name) > 1:
            raise InvalidParameter(f"{name}: is given {names.count(name)} times; give it once")


M = TypeVar("M", bound=BaseModel)

#: Largest body, in bytes, that is parsed on the event loop, in a fraction of a millisecond.
SMALL_BODY = 8_192

#: Moves of all positions of a batch; they are played one by one, about 20 µs each.
MAX_PLIES = 65_536

_FIELDS = 4_096  # bytes of all fields except lists, with room to spare
_MOVE = 32  # bytes of a UCI move, quotes, separator and indentation
_NUMBER = 48  # bytes of a float64 in full, with its move as key, quotes, separator and indentation
_NAME = 256  # bytes of a model's name, or of a rating
_GZIP = 31  # zlib's name for gzip with the largest window
_UNPACKED = 65_536  # bytes of a body that are unpacked at once
_ESCAPED = 6  # bytes of a character as \uXXXX
_VALUES = 64  # values, containers and fields of one request or position, with room to spare

#: A string, or what is counted outside strings. In linear time: a string that does not end goes to the body's end.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[,{\[]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The most that a body may hold: bytes, values (counted by commas, which are bytes too), containers (counted by
    brackets) and fields of one object."""

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
    return BodyLimits(most * position_limits(settings).size, values + MAX_PLIES, containers=values)


def sweep_limits(settings: Settings) -> BodyLimits:
    """Limits for one position and its ratings or models."""
    return BodyLimits(position_limits(settings).size + _NAME * settings.max_positions)


def games_limits(settings: Settings) -> BodyLimits:
    """Limits for a PGN with every character escaped."""
    return BodyLimits(_FIELDS + _ESCAPED * MAX_PGN, values=_VALUES)


def audit_limits(settings: Settings) -> BodyLimits:
    """Limits for a number per slot."""
    return BodyLimits(position_limits(settings).size + _NUMBER * MAX_SLOTS, fields=MAX_SLOTS)


def mcp_limits(settings: Settings) -> BodyLimits:
    """Limits for a call of any tool."""
    values = MAX_SLOTS + settings.max_moves + settings.max_positions + _VALUES
    return BodyLimits(_FIELDS + max(games_limits(settings).size, audit_limits(settings).size), values, fields=MAX_SLOTS)


class Bounded:
    """An ASGI app that gets bodies within `limits` alone, as `PostRoute`'s endpoints do."""

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
    """The body. Raises ProblemError for one that is not sent as JSON (415) or is larger than its route's limit (413),
    of which no more is read."""
    limit = min(limits.size, settings.max_body_bytes)
    media_type = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    coding = http.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip"):
        fault = f"Content-Encoding is {shown(coding)!r}; send the body with gzip, or as it is"
        raise ProblemError("unsupported-media-type", fault, {"Accept-Encoding": "gzip"})
    length = http.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise _too_large(f"{length} bytes", limit, settings)
    main, _, kind = media_type.partition("/")
    if main != "application" or not (kind == "json" or kind.endswith("+json")):
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
    """The parts of a body that was sent with gzip, which count as bytes in flight too. They are small, so that a body
    is refused before much of it is unpacked. Raises ProblemError for anything but gzip, and Overloaded."""
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
    """The validated body. Raises ProblemError for invalid JSON or a body that does not fit the model, LimitExceeded
    for too many items. Only the first error of each list is reported."""
    try:
        return model.model_validate(_decoded(body, limits), context=settings)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        raise problems.invalid_request(details) from None


def _count(body: bytes, characters: bytes, what: str, most: int) -> None:
    """Raises LimitExceeded for more than so many of these characters, which do not count within strings."""
    count = sum(map(body.count, characters))
    if count > most and b"\0" not in body:  # not UTF-16 or UTF-32, whose strings end elsewhere
        outside = (token for token in _TOKEN.finditer(body) if body[token.start()] in characters)
        count = sum(1 for _ in islice(outside, most + 1))
    if count > most:
        raise LimitExceeded(f"body: more than {most} {what}; send fewer at once")


def _decoded(body: bytes, limits: BodyLimits) -> Any:
    """The JSON of a body; raises ProblemError, and LimitExceeded before it is read if it holds too much."""
    _count(body, b",", "values", limits.size if limits.values is None else limits.values)
    _count(body, b"{[", "objects and arrays", limits.containers)
    if not body:
        raise problems.invalid_field("body", "is missing")
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
    """A JSON object with at most `most` fields. A repeated field is `REPEATED`, since either value might be meant."""
    if len(pairs) > most:
        raise LimitExceeded(f"body: an object of {len(pairs)} fields; at most {most} are allowed")
    fields = dict(pairs)
    if len(fields) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        fields |= {name: problems.REPEATED for name, count in counts.items() if count > 1}
    return fields


class PostRoute(APIRoute):
    """A POST route that reads and validates its own body and calls its endpoint.

    FastAPI documents it and is passed by, for two reasons. It costs less: 39 µs of CPU for a small request and its
    answer, with a plain route of FastAPI's 139 (`python -m benchmarks.routing`). And a body is bounded before it is
    parsed, in bytes, values and containers, which FastAPI has no place for.

    `limits` bounds its body, `positions` is how many positions a body asks about, for its client's rate, and `statuses`
    are those of errors beside the ones that all have. The endpoint takes the body as `request`, Starlette's request and
    the services.
    """

    def __init__(
        self,
        path: str,
        endpoint: Endpoint,
        *,
        limits: Callable[[Settings], BodyLimits],
        positions: Callable[[Any], int] = lambda request: 1,
        statuses: tuple[int, ...] = (),
        responses: dict[int | str, dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        errors = problems.documented(422, 401, 403, 429, *sorted({400, 413, 415, *statuses}))
        options |= {"dependencies": [BEARER], "responses": {**errors, **(responses or {})}}
        super().__init__(path, endpoint, methods=["POST"], generate_unique_id_function=operation_id, **options)
        self._body: type[BaseModel] = get_type_hints(endpoint)["request"]
        self._endpoint, self._limits, self._positions = endpoint, limits, positions

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["path"] != self.path:
            return Match.NONE, {}
        match = Match.FULL if scope["method"] == "POST" else Match.PARTIAL
        return match, {"route": self, "endpoint": self._endpoint, "path_params": {}}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise HTTPException(405, headers={"Allow": "POST"})  # a POST goes through `Posts`

    async def answer(self, scope: Scope, receive: Receive) -> Response:
        """The response to a POST; raises the errors that have a problem."""
        http = Request(scope, receive)
        services: Services = scope["app"].state.services
        settings = services.settings
        limits = self._limits(settings)
        body = await read_body(http, limits, settings)
        if len(body) <= SMALL_BODY:
            request = parsed(body, self._body, limits, settings)
        else:
            request = await to_thread.run_sync(parsed, body, self._body, limits, settings, limiter=services.parsing)
        if scope["query_string"]:
            await known_parameters(http)
        context_of(scope).charge(self._positions(request))  # to the client's rate; raises RateLimited
        return await self._endpoint(request, http, services)


class Posts:
    """ASGI app that calls the POST routes by their path, and everything else through FastAPI's layers."""

    def __init__(self, app: FastAPI, others: ASGIApp) -> None:
        self._posts: dict[str, PostRoute] = app.state.posts
        self._others = others
        self._handlers = {kind: cast(Handler, handler) for kind, handler in app.exception_handlers.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._posts.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if route is None:
            with whole_path(scope):
                await self._others(scope, receive, send)
            return
        scope["route"] = route
        response: ASGIApp
        try:
            response = await route.answer(scope, receive)
            if len(getattr(response, "body", _STREAMED)) >= COMPRESSED:
                response = GZipMiddleware(response, minimum_size=COMPRESSED, compresslevel=4)
        except Exception as error:
            http = Request(scope, receive)
            handler = next((self._handlers[kind] for kind in type(error).__mro__ if kind in self._handlers), None)
            assert handler is not None  # there is one for Exception
            response = await handler(http, error)
            if handler is self._handlers[Exception]:
                log.exception("%s %s failed", scope["method"], scope["path"])
        await response(scope, receive, send)


class Router(APIRouter):
    """Declares routes; those for POST are in `posts`."""

    def __init__(self, *, tags: list[str]) -> None:
        super().__init__(tags=[*tags])
        self.posts: list[PostRoute] = []

    def post(self, path: str, **options: Any) -> Callable[[E], E]:
        """Declares a `PostRoute`."""

        def declare(endpoint: E) -> E:
            self.posts.append(PostRoute(path, endpoint, **{"tags": self.tags, **options}))
            return endpoint

        return declare
