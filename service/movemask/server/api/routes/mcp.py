"""`POST /mcp`: tools for language models (Model Context Protocol), which ask this service themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movemask.errors import require
from movemask.server.api.routing import bounded_body
from movemask.server.edge.authentication import authorize
from movemask.server.edge.keys import KeyScope
from movemask.server.edge.sites import Sites
from movemask.server.edge.traits import Traits

_PATH = "/mcp"

#: Headers of a tool's caller that are passed on to the API, and the time of an answer, which has limits of its own.
_FORWARDED = ("authorization", "host", "x-request-id")
_SECONDS = 600.0

#: Most bytes of a tool call, and its most brackets and commas. The MCP SDK takes up to 43 times as much memory for a
#: body that it refuses, such as one of empty lists.
_BYTES, _PIECES = 64 << 10, 4096


def install(app: FastAPI, sites: Sites) -> Callable[[], AbstractAsyncContextManager[None]]:
    """Adds the route; returns the context manager that runs its sessions, for the lifespan. The tools send their
    requests to this app as the client that called them, so keys, limits, metrics and logs apply. Raises MissingExtra.
    """
    require("mcp", "MOVEMASK_MCP")
    import httpx2
    from mcp.server.transport_security import TransportSecuritySettings

    from movemask.client.http import AsyncClient
    from movemask.mcp import mcp_server

    @asynccontextmanager
    async def opened(context: Any) -> AsyncIterator[AsyncClient]:
        """A client of this app that asks as the one that called the tool."""
        caller, sent = context.request.client, context.request.headers
        transport = httpx2.ASGITransport(app=app, client=tuple(caller) if caller else ("", 0))
        headers = {name: sent[name] for name in _FORWARDED if name in sent}
        async with httpx2.AsyncClient(
            base_url="http://127.0.0.1", transport=transport, headers=headers
        ) as http:
            yield AsyncClient(http=http, timeout=_SECONDS)

    server = mcp_server(opened)
    served = server.streamable_http_app(
        stateless_http=True,
        json_response=True,
        # `Sites` checks Host and Origin. The SDK's own check answers with bare text.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    (endpoint,) = (route.endpoint for route in served.routes if isinstance(route, Route))
    app.router.routes.append(_McpRoute(endpoint, sites))
    return server.session_manager.run


class _McpRoute(Route):
    """The route of the SDK's app, for clients with any key: the tools' own requests have the scopes of their routes."""

    def __init__(self, app: ASGIApp, sites: Sites) -> None:
        # No GET: its stream might stay open for ever.
        super().__init__(_PATH, _Bounded(app, sites), methods=["POST"])
        self.traits = Traits(path=_PATH, timed=True)


class _Bounded:
    """ASGI app that checks origin, key and body before another one."""

    def __init__(self, app: ASGIApp, sites: Sites) -> None:
        self._app, self._sites = app, sites

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._sites.check_origin(scope)
        http = Request(scope, receive)
        authorize(http, frozenset(KeyScope))
        body = await bounded_body(http, http.app.state.services, _BYTES, _PIECES)
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def read() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, read, send)
