"""POST requests go straight to their endpoints: body → model → endpoint → response.

FastAPI declares and documents these routes. Here each body is read and validated once, a large one off the event loop;
and FastAPI's routing and dependencies would take longer than everything of ours but the network.
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
from movemask.settings import Settings

#: Bytes of a body that is read on the event loop: it takes a millisecond or two, whatever it holds.
_SMALL = 32_768

#: Large bodies that are read at once; each may take many times its size in memory.
_LARGE_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class DirectRoute:
    """A POST route of FastAPI's: its path, the model of its body, the function behind it, and what a body may hold."""

    path: str
    body: type[BaseModel]
    endpoint: Callable[[Any, Request, Services], Awaitable[Response]]
    limits: Callable[[Settings], BodyLimits]


class Direct:
    """ASGI: takes the requests of `routes` and leaves all others to `app`."""

    def __init__(self, app: ASGIApp, routes: tuple[DirectRoute, ...]) -> None:
        self._app = app
        self._routes = {route.path: route for route in routes}
        self._large = CapacityLimiter(_LARGE_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route  # as FastAPI's router does: the metrics ask for its path
        request = Request(scope, receive, send)
        try:
            services: Services = scope["app"].state.services
            asked = await self._read(route, await request.body(), services.settings)
            refuse_parameters(request, route.body)
            response = await route.endpoint(asked, request, services)
        except Exception as error:
            response = await _told(request, error)
        await response(scope, receive, send)

    async def _read(self, route: DirectRoute, body: bytes, settings: Settings) -> BaseModel:
        limits = route.limits(settings)
        if len(body) <= _SMALL:
            return bodies.read(body, route.body, limits, settings)
        return await to_thread.run_sync(bodies.read, body, route.body, limits, settings, limiter=self._large)


async def _told(request: Request, error: Exception) -> Response:
    """The answer of the app's own handler for an error, as inside its router; what none foresees is raised."""
    for kind in type(error).__mro__:
        handler = request.app.exception_handlers.get(kind)
        if handler is not None and kind is not Exception:
            response: Response = await handler(request, error)
            return response
    raise error
