"""`Direct`: middleware that calls the POST endpoints without FastAPI's routing and dependency injection.

FastAPI declares and documents the routes. A small request comes to its endpoint and back in 61 µs of CPU time here, in
329 by a plain route of FastAPI's, in 301 by one with a handler of its own (`python -m benchmarks.routing`). Each body
is parsed and validated once; large ones off the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import Request, Response
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from movemask.api import bodies
from movemask.api.bodies import BodyLimits
from movemask.api.parameters import refuse_parameters
from movemask.api.services import Services
from movemask.api.shares import take
from movemask.errors import Overloaded
from movemask.network.lanes import SHORT
from movemask.settings import Settings

#: Largest body, in bytes, that is parsed on the event loop; takes at most a millisecond or two.
_SMALL = 32_768

#: Share of the queue that large requests may fill; the rest is for small ones.
_LARGE_SHARE = 0.875

#: Large bodies parsed at once; each may take many times its size in memory.
_LARGE_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class DirectRoute:
    """A POST route: its path, the model of its body, its endpoint, the limits of its body, and how many positions a
    body asks about, for its client's share."""

    path: str
    body: type[BaseModel]
    endpoint: Callable[[Any, Request, Services], Awaitable[Response]]
    limits: Callable[[Settings], BodyLimits]
    positions: Callable[[Any], int] = lambda body: 1


class Direct:
    """ASGI middleware that answers the POST requests of `routes` and passes all others to `app`."""

    def __init__(self, app: ASGIApp, routes: tuple[DirectRoute, ...]) -> None:
        self._app = app
        self._routes = {route.path: route for route in routes}
        self._large = CapacityLimiter(_LARGE_AT_ONCE)
        self._reading = 0  # positions in large bodies that are being parsed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route  # as FastAPI's router does; the metrics read its path
        request = Request(scope, receive, send)
        try:
            services: Services = scope["app"].state.services
            body = await self._read(route, await request.body(), services)
            refuse_parameters(request, route.body)
            take(scope, route.positions(body))
            response = await route.endpoint(body, request, services)
        except Exception as error:
            response = await _error_response(request, error)
        await response(scope, receive, send)

    async def _read(self, route: DirectRoute, body: bytes, services: Services) -> BaseModel:
        settings = services.settings
        limits = route.limits(settings)
        positions = max(1, body.count(b"{") - 1)  # more or less; parsing it would take longer than refusing it
        if positions > SHORT:
            self._admit(positions, services)
        if len(body) <= _SMALL:
            return bodies.read(body, route.body, limits, settings)
        self._reading += positions
        try:
            return await to_thread.run_sync(bodies.read, body, route.body, limits, settings, limiter=self._large)
        finally:
            self._reading -= positions

    def _admit(self, positions: int, services: Services) -> None:
        """Raises Overloaded if the queue cannot take so many positions after those that are ahead of them."""
        ahead = self._reading + services.serving.waiting()
        most = int(_LARGE_SHARE * services.settings.max_queue)
        if ahead and ahead + positions > most:
            raise Overloaded(
                f"{ahead} positions wait already; the queue takes {most} of large requests (MOVEMASK_MAX_QUEUE)",
                retry_after=1,
            )


async def _error_response(request: Request, error: Exception) -> Response:
    """The response of the app's exception handler for `error`; raises the error again if there is none."""
    for kind in type(error).__mro__:
        handler = request.app.exception_handlers.get(kind)
        if handler is not None and kind is not Exception:
            response: Response = await handler(request, error)
            return response
    raise error
