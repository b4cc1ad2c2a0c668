"""The routes that are asked most go straight to their endpoints: body → model → endpoint → response.

FastAPI declares them, documents them and answers whatever cannot be read; of a request that can, its finding of the
route, its solving of dependencies and its reading of the body take longer than everything of ours but the network.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel, ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.services import Services


@dataclass(frozen=True, slots=True)
class DirectRoute:
    """A POST route of FastAPI's: its path, the model of its body, and the function behind it."""

    path: str
    body: type[BaseModel]
    endpoint: Callable[[Any, Request, Services], Awaitable[Response]]


class Direct:
    """ASGI: takes the requests of `routes` and leaves all others to `app`."""

    def __init__(self, app: ASGIApp, routes: tuple[DirectRoute, ...]) -> None:
        self._app = app
        self._routes = {route.path: route for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route  # as FastAPI's router does: the metrics ask for its path
        request = Request(scope, receive, send)
        try:
            body = await request.body()
            try:
                asked = route.body.model_validate_json(body)
            except ValidationError:
                await self._app(scope, _again(body, receive), send)
                return
            response = await route.endpoint(asked, request, scope["app"].state.services)
        except Exception as error:
            response = await _told(request, error)
        await response(scope, receive, send)


def _again(body: bytes, receive: Receive) -> Receive:
    """What gives a body that has been read once more, and then what comes after it."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _told(request: Request, error: Exception) -> Response:
    """The answer of the app's own handler for an error, as inside its router; what none foresees is raised."""
    for kind in type(error).__mro__:
        handler = request.app.exception_handlers.get(kind)
        if handler is not None and kind is not Exception:
            response: Response = await handler(request, error)
            return response
    raise error
