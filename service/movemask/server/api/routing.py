"""`Routes` declares the routes of the API: each says all that holds for it, next to its handler."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar, get_type_hints

from fastapi import Request, Response, Security, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from starlette.routing import BaseRoute, Route

from movemask.errors import InvalidParameter, shown
from movemask.server.api.body_reader import check_pieces, parsed, read_body
from movemask.server.edge.authentication import authorize
from movemask.server.edge.context import context_of
from movemask.server.edge.keys import KeyScope
from movemask.server.edge.limits import RequestLimits
from movemask.server.edge.traits import NOTHING, Table, Traits
from movemask.server.problems import documented, near_or_all
from movemask.server.services import Services

E = TypeVar("E", bound=Callable[..., Any])

#: The endpoint of a POST route: body, HTTP request and services → response.
Endpoint = Callable[[Any, Request, Services], Awaitable[Response]]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]

#: Bytes of a body that is validated alone in its turn of the event loop: it takes milliseconds, and may be one of many.
_LARGE = 8192

#: The scopes of a route that needs no key.
OPEN: frozenset[KeyScope] = frozenset()

#: Documents how keys are sent. `authorize` checks them.
_BEARER = Security(HTTPBearer(auto_error=False, description="An API key, if the service has any."))


async def bounded_body(
    http: Request, services: Services, size: int | None, pieces: int | None
) -> bytes:
    """Returns the body of a request, when it may be parsed: a large one in a turn of its own.

    Raises ProblemError above `size` bytes, or above `pieces` brackets and commas.
    """
    body = await read_body(http, size, services.limits)
    if pieces is not None:
        check_pieces(body, pieces)
    if len(body) > _LARGE:
        async with services.large_bodies:  # the next one goes on in a later turn of the loop
            await asyncio.sleep(0)
    return body


def operation_id(route: APIRoute) -> str:
    """Returns the path in camel case: `/v1/policy/batch` → `policyBatch`, `/v1/models/{name}` →
    `model`.
    """
    parts = [part for part in route.path.split("/") if part not in ("", "v1")]
    if parts and parts[-1].startswith("{"):
        parts = [*parts[:-2], re.sub("ies$", "y", parts[-2]).removesuffix("s")]
    first, *rest = parts or ["root"]
    return first + "".join(part.capitalize() for part in rest)


class ScopedRoute(APIRoute):
    """A GET route.

    Parameters
    ----------
    scopes : a key needs one of them; `OPEN` needs no key
    any_parameters : whether unknown query parameters are ignored
    polled, free, any_host, timed, cached, shared, compressed, csp : as of `Traits`
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        scopes: frozenset[KeyScope],
        any_parameters: bool = False,
        polled: bool = False,
        free: bool = False,
        any_host: bool = False,
        timed: bool = True,
        cached: bool = False,
        shared: bool = False,
        compressed: bool = True,
        csp: bytes = NOTHING,
        responses: dict[int | str, dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        self.scopes, self.any_parameters = scopes, any_parameters
        self.traits = Traits(
            path=path,
            polled=polled,
            free=free,
            any_host=any_host,
            timed=timed,
            cached=cached,
            shared=shared,
            compressed=compressed,
            csp=csp,
        )
        errors = documented(422, *((401, 403, 429) if scopes else ()))
        if cached:
            errors[304] = {"description": "The ETag in If-None-Match is current."}
        if scopes:
            options["dependencies"] = [_BEARER]
        options |= {
            "responses": {**errors, **(responses or {})},
            "generate_unique_id_function": operation_id,
        }
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def checked(http: Request) -> Response:
            authorize(http, self.scopes)
            _check_parameters(http, self)
            return await handle(http)

        return checked


class BodyRoute(ScopedRoute):
    """A POST route. It reads, bounds and validates its body itself, and calls its endpoint.

    Parameters
    ----------
    endpoint : takes the body as `request`, Starlette's request and the services
    size : most bytes of a body; None: as many as the settings allow
    pieces : most brackets and commas of a body outside its texts, by the limits; None: as many as `size` allows
    cost : how many positions a request asks about, for its client's rate
    statuses : the error statuses of the route, beyond those of every POST route
    """

    def __init__(
        self,
        path: str,
        endpoint: Endpoint,
        *,
        size: int | None = None,
        pieces: Callable[[RequestLimits], int] | None = None,
        cost: Callable[[Any], int] = lambda request: 1,
        statuses: tuple[int, ...] = (),
        responses: dict[int | str, dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        self.request_model: type[BaseModel] = get_type_hints(endpoint)["request"]
        self._endpoint, self._size, self._pieces, self._cost = endpoint, size, pieces, cost
        errors = documented(*sorted({400, 413, 415, *statuses}))
        super().__init__(
            path, endpoint, methods=["POST"], responses={**errors, **(responses or {})}, **options
        )

    def get_route_handler(self) -> Handler:
        async def handle(http: Request) -> Response:
            authorize(http, self.scopes)
            services: Services = http.app.state.services
            pieces = None if self._pieces is None else self._pieces(services.limits)
            body = await bounded_body(http, services, self._size, pieces)
            request = parsed(body, self.request_model, services.limits)
            _check_parameters(http, self)
            context_of(http.scope).charge(self._cost(request))  # raises RateLimited
            return await self._endpoint(request, http, services)

        return handle


def table_of(routes: Iterable[BaseRoute], undeclared: Callable[[str], Traits]) -> Table:
    """Returns what all routes of an app declare.

    `undeclared` makes the traits of the path of a route that declares none.
    """
    table = Table()
    for route in routes:
        if isinstance(route, Route):
            traits: Traits = getattr(route, "traits", None) or undeclared(route.path)
            table.add(route.methods or (), traits)
    return table


class Routes(list[APIRoute]):
    """The routes of one tag, in the order in which they are tried."""

    def __init__(self, tag: str) -> None:
        self._tag = tag

    def get(self, path: str, *, scopes: frozenset[KeyScope], **options: Any) -> Callable[[E], E]:
        """Declares a `ScopedRoute`."""
        return self._declare(ScopedRoute, path, scopes=scopes, **options)

    def post(self, path: str, *, scopes: frozenset[KeyScope], **options: Any) -> Callable[[E], E]:
        """Declares a `BodyRoute`."""
        return self._declare(BodyRoute, path, scopes=scopes, **options)

    def _declare(self, kind: type[ScopedRoute], path: str, **options: Any) -> Callable[[E], E]:
        def declare(endpoint: E) -> E:
            self.append(kind(path, endpoint, tags=[self._tag], **options))
            return endpoint

        return declare


def _check_parameters(http: Request, route: ScopedRoute) -> None:
    """Raises InvalidParameter for a query parameter that the route does not have, or that is repeated.

    POST routes have none. The page accepts any: sites that show a link to it may add their own.
    """
    if not http.scope["query_string"] or route.any_parameters:
        return
    fields = get_flat_params(route.dependant)
    known = [field.alias for field in fields if isinstance(field.field_info, params.Query)]
    names = [name for name, _ in http.query_params.multi_items()]
    for name in names:
        if name not in known:
            raise InvalidParameter(
                f"{shown(name)}: {http.url.path} has no such query parameter; {_hint(http, route, name, known)}"
            )
        if names.count(name) > 1:
            raise InvalidParameter(f"{name}: is given {names.count(name)} times; give it once")


def _hint(http: Request, route: APIRoute, name: str, known: list[str]) -> str:
    """Returns what to do instead of a query parameter that the route does not have."""
    for post in http.app.routes:
        if (
            isinstance(post, BodyRoute)
            and post.path == route.path
            and name in post.request_model.model_fields
        ):
            return (
                "send it in the body"
                if post is route
                else f"use POST {route.path}, and send it in the body"
            )
    return near_or_all(name, known)
