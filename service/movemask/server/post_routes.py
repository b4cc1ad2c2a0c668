"""`Router` declares routes; `PostRoute` reads and answers POST requests, which FastAPI only documents."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast, get_type_hints

from anyio import to_thread
from fastapi import APIRouter, FastAPI, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from movemask.server import problems
from movemask.server.bodies import SMALL_BODY, BodyLimits, parsed, read_body
from movemask.server.context import context_of
from movemask.server.parameters import known_parameters
from movemask.server.prefix import whole_path
from movemask.server.settings import Settings
from movemask.server.state import Services

log = logging.getLogger(__name__)

E = TypeVar("E", bound=Callable[..., Any])

#: The endpoint of a POST route: body, HTTP request and services → response.
Endpoint = Callable[[Any, Request, Services], Awaitable[Response]]

#: Smallest response, in bytes, that is compressed.
COMPRESSED = 16_384

#: Stands for the body of a streamed response, whose length is unknown; long enough to be compressed.
_STREAMED = range(COMPRESSED)

Handler = Callable[[Request, Exception], Awaitable[Response]]

#: Documents how keys are sent. `AdmissionControl` checks them.
BEARER = Security(HTTPBearer(auto_error=False, description="An API key, if the service has any."))


def operation_id(route: APIRoute) -> str:
    """The path in camel case: `/v1/policy/batch` → `policyBatch`, `/v1/models/{name}` → `model`."""
    parts = [part for part in route.path.split("/") if part not in ("", "v1")]
    if parts and parts[-1].startswith("{"):
        parts = [*parts[:-2], re.sub("ies$", "y", parts[-2]).removesuffix("s")]
    first, *rest = parts or ["root"]
    return first + "".join(part.capitalize() for part in rest)


class PostRoute(APIRoute):
    """A POST route that validates its body and calls its endpoint.

    FastAPI documents the route but does not run it. This costs 39 µs of CPU for a small request instead of 139
    (`python -m benchmarks.routing`), and a body is bounded in bytes, values and containers before it is parsed.

    Parameters
    ----------
    endpoint : takes the body as `request`, Starlette's request and the services
    limits : bounds the body
    positions : how many positions a request asks about, for its client's rate
    statuses : the error statuses of the route, beyond those of every POST route
    allow : the methods of all routes of the path
    """

    def __init__(
        self,
        path: str,
        endpoint: Endpoint,
        *,
        limits: Callable[[Settings], BodyLimits],
        positions: Callable[[Any], int] = lambda request: 1,
        statuses: tuple[int, ...] = (),
        allow: str = "POST",
        responses: dict[int | str, dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        errors = problems.documented(422, 401, 403, 429, *sorted({400, 413, 415, *statuses}))
        options |= {"dependencies": [BEARER], "responses": {**errors, **(responses or {})}}
        super().__init__(path, endpoint, methods=["POST"], generate_unique_id_function=operation_id, **options)
        self.request_model: type[BaseModel] = get_type_hints(endpoint)["request"]
        self.limits, self._allow = limits, allow
        self._endpoint, self._positions = endpoint, positions

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["path"] != self.path:
            return Match.NONE, {}
        match = Match.FULL if scope["method"] == "POST" else Match.PARTIAL
        return match, {"route": self, "endpoint": self._endpoint, "path_params": {}}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise HTTPException(405, headers={"Allow": self._allow})  # a POST goes through `Posts`

    async def respond(self, scope: Scope, receive: Receive) -> Response:
        """The response to a POST request; raises its error."""
        http = Request(scope, receive)
        services: Services = scope["app"].state.services
        settings = services.settings
        limits = self.limits(settings)
        body = await read_body(http, limits, settings)
        if len(body) <= SMALL_BODY:
            request = parsed(body, self.request_model, limits, settings)
        else:
            request = await to_thread.run_sync(
                parsed, body, self.request_model, limits, settings, limiter=services.parsing
            )
        if scope["query_string"]:
            await known_parameters(http)
        context_of(scope).charge(self._positions(request))  # raises RateLimited
        return await self._endpoint(request, http, services)


class Posts:
    """ASGI app that calls POST routes by their path, and passes other requests on to FastAPI."""

    def __init__(self, app: FastAPI, others: ASGIApp) -> None:
        self._posts: dict[str, PostRoute] = app.state.posts
        self._others = others
        self._handlers = {error: cast(Handler, handler) for error, handler in app.exception_handlers.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._posts.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if route is None:
            with whole_path(scope):
                await self._others(scope, receive, send)
            return
        scope["route"] = route
        response: ASGIApp
        try:
            response = await route.respond(scope, receive)
            if len(getattr(response, "body", _STREAMED)) >= COMPRESSED:
                response = GZipMiddleware(response, minimum_size=COMPRESSED, compresslevel=4)
        except Exception as error:
            http = Request(scope, receive)
            handler = next(self._handlers[base] for base in type(error).__mro__ if base in self._handlers)
            response = await handler(http, error)
            if handler is self._handlers[Exception]:
                log.exception("%s %s failed", scope["method"], scope["path"])
        await response(scope, receive, send)


class Router(APIRouter):
    """Declares routes. POST routes are collected in `posts`."""

    def __init__(self, *, tags: list[str]) -> None:
        super().__init__(tags=[*tags])
        self.posts: list[PostRoute] = []

    def post(self, path: str, **options: Any) -> Callable[[E], E]:
        """Declares a `PostRoute`."""

        def declare(endpoint: E) -> E:
            self.posts.append(PostRoute(path, endpoint, **{"tags": self.tags, **options}))
            return endpoint

        return declare
