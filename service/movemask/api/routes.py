"""How routes are declared: `Router`, and `PostRoute`, which FastAPI only documents.

A small request comes to its endpoint and back in a fraction of the CPU time that a plain route of FastAPI's takes
(`python -m benchmarks.routing`). Large bodies are parsed off the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from typing import Any, TypeVar, cast, get_type_hints

from anyio import to_thread
from fastapi import APIRouter, FastAPI, Request, Response, Security, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from movemask.api import problems
from movemask.api.bodies import SMALL, BodyLimits, parsed, read_body
from movemask.api.context import context_of
from movemask.api.problems import shown
from movemask.api.state import Services
from movemask.errors import InvalidParameter
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
        parts = [*parts[:-2], parts[-2].removesuffix("s")]
    first, *rest = parts or ["root"]
    return first + "".join(part.capitalize() for part in rest)


async def known_parameters(http: Request) -> None:
    """Refuses query parameters that the route does not take, as a POST route takes none, or that are repeated; raises
    InvalidParameter."""
    if not http.query_params or http.url.path == "/":  # a link to the page may have been decorated on its way
        return
    fields = get_flat_params(http.scope["route"].dependant)
    known = [field.alias for field in fields if isinstance(field.field_info, params.Query)]
    names = [name for name, _ in http.query_params.multi_items()]
    for name in names:
        if name not in known:
            near = get_close_matches(name[:40].lower(), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"available: {', '.join(known) or 'none'}"
            raise InvalidParameter(f"{shown(name)}: {http.url.path} has no such query parameter; {hint}")
        if names.count(name) > 1:
            raise InvalidParameter(f"{name}: is given {names.count(name)} times; give it once")


class PostRoute(APIRoute):
    """A POST route that reads and validates its own body and calls its endpoint: none of FastAPI's machinery runs.

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
        raise HTTPException(405, headers={"Allow": "POST"})  # POST does not come this way: `create_app`

    async def answer(self, scope: Scope, receive: Receive) -> Response:
        """The response to a POST; raises the errors that have a problem."""
        http = Request(scope, receive)
        services: Services = scope["app"].state.services
        settings = services.settings
        limits = self._limits(settings)
        body = await read_body(http, limits, settings)
        if len(body) <= SMALL:
            request = parsed(body, self._body, limits, settings)
        else:
            request = await to_thread.run_sync(parsed, body, self._body, limits, settings, limiter=services.parsing)
        if scope["query_string"]:
            await known_parameters(http)
        context_of(scope).take(self._positions(request))  # of the client's rate; raises RateLimited
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
