"""`create_app`: routes, middleware, error handlers and lifespan, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi_offline import FastAPIOffline
from opentelemetry.trace import TracerProvider, get_tracer
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp

from movemask.errors import require
from movemask.network.model import Model
from movemask.server import problems
from movemask.server.admission import MOST_BYTES, AdmissionControl
from movemask.server.bodies import Bounded, mcp_limits
from movemask.server.keys import Keys
from movemask.server.limits import BytesInFlight
from movemask.server.openapi import DESCRIPTION, install_openapi
from movemask.server.origins import OwnOrigin
from movemask.server.parameters import known_parameters
from movemask.server.post_routes import BEARER, COMPRESSED, Posts, operation_id
from movemask.server.prefix import RootPath
from movemask.server.rates import Rates
from movemask.server.routes import games, judge, leakage, operations, page, policy
from movemask.server.settings import Settings
from movemask.server.state import running_services
from movemask.server.supervisor import Needed
from movemask.server.telemetry import Metrics, RequestLog
from movemask.version import __version__

#: Headers of answers that pages of other origins may read.
_EXPOSED = ("Retry-After", "RateLimit", "RateLimit-Policy", "X-Request-ID", "ETag")

#: Headers of a tool's caller that are passed on to the API, and the time of an answer, which has limits of its own.
_FORWARDED = ("authorization", "host", "x-request-id")
_MCP_SECONDS = 600.0

#: nginx's status for a request whose client closed the connection; only metrics and logs show it.
_CLIENT_CLOSED = 499


def create_app(
    settings: Settings | None = None,
    *,
    rates: Rates | None = None,
    needed: Needed = Needed.NONE,
    tracer_provider: TracerProvider | None = None,
    prepare: Callable[[Model], Model] | None = None,
) -> FastAPI:
    """The app. Models, ledger and threads are created in its lifespan.

    Parameters
    ----------
    settings : those of the environment if None
    rates : of clients, which the workers of a service share; None for its only process
    needed : the models that must pass their check
    tracer_provider : where spans go; by default OpenTelemetry's variables decide
    prepare : as in `running_services`
    """
    settings = Settings.read() if settings is None else settings
    rates = Rates() if rates is None else rates
    keys = Keys.of(settings)
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with running_services(settings, metrics, rates, needed, prepare) as app.state.services:
            async with sessions():
                yield

    # FastAPIOffline serves the scripts and styles of /docs itself, without a CDN.
    app: FastAPI = FastAPIOffline(
        title="movemask",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,  # a POST that is redirected may lose its body
        responses=problems.documented(422),
        dependencies=[Depends(known_parameters)],
        generate_unique_id_function=operation_id,
        # Metrics go to Prometheus and logs to standard error; FastAPI's own spans are negligible beside the network's.
        telemetry={
            "tracer_provider": tracer_provider,
            "auto_configure": True,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
        },
    )
    app.state.metrics = metrics
    app.state.in_flight = in_flight = BytesInFlight(MOST_BYTES // rates.processes)
    posts = [*policy.router.posts, *games.router.posts, *judge.router.posts]
    app.state.posts = {route.path: route for route in posts}
    app.router.routes[:0] = posts  # for the documents, and for other methods
    keyed_routers = (policy.router, leakage.router, operations.models_router, operations.keyed_router)
    for router in keyed_routers:
        app.include_router(router, dependencies=[BEARER], responses=problems.documented(401, 403, 429))
    app.include_router(operations.router)
    sessions = _install_mcp(app, settings, keyed=keys is not None) if settings.mcp else nullcontext
    if settings.page:
        app.include_router(page.router)
    install_openapi(app, keyed=keys is not None)
    gets = [route.path for router in (*keyed_routers, operations.router) for route in router.routes]  # type: ignore[attr-defined]
    paths = [*app.state.posts, *gets, "/docs", *(["/mcp"] if settings.mcp else [])]
    problems.install_handlers(app, metrics.problem, paths)
    app.add_exception_handler(ClientDisconnect, _client_gone)
    tracer = get_tracer("movemask", __version__, tracer_provider)

    def stack() -> ASGIApp:
        """Replaces FastAPI's stack. From outside: CORS if set, RootPath, RequestLog, AdmissionControl, Posts.

        Posts runs POST routes itself; all else goes through gzip to FastAPI.
        """
        others = GZipMiddleware(FastAPI.build_middleware_stack(app), minimum_size=COMPRESSED, compresslevel=4)
        inner = AdmissionControl(Posts(app, others), keys, settings, metrics, rates, in_flight)
        outer = RootPath(RequestLog(inner, metrics=metrics, tracer=tracer), settings)
        if not settings.cors_origins:
            return outer
        return CORSMiddleware(
            outer,
            allow_origins=settings.cors_origins.split(","),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "If-None-Match", "X-Request-ID"],
            expose_headers=_EXPOSED,
        )

    app.build_middleware_stack = stack  # type: ignore[method-assign]
    return app


def _install_mcp(app: FastAPI, settings: Settings, *, keyed: bool) -> Callable[[], AbstractAsyncContextManager[None]]:
    """Adds /mcp; returns the context manager that runs its sessions, for the lifespan. The tools send their requests to
    this app as the client that called them, so keys, limits, metrics and logs apply. Raises MissingExtra."""
    require("mcp", "MOVEMASK_MCP")
    import httpx2
    from mcp.server.transport_security import TransportSecuritySettings

    from movemask.client.http import AsyncClient
    from movemask.mcp import mcp_server

    @asynccontextmanager
    async def opened(context: Any) -> AsyncIterator[AsyncClient]:
        """A client of this app that asks as the one that called the tool."""
        caller, given = context.request.client, context.request.headers
        transport = httpx2.ASGITransport(app=app, client=tuple(caller) if caller else ("", 0))
        headers = {name: given[name] for name in _FORWARDED if name in given}
        async with httpx2.AsyncClient(base_url="http://127.0.0.1", transport=transport, headers=headers) as http:
            yield AsyncClient(http=http, timeout=_MCP_SECONDS)

    server = mcp_server(opened)
    # `OwnOrigin` and AdmissionControl check hosts and origins instead, and answer with problems.
    trusted = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    served = server.streamable_http_app(stateless_http=True, json_response=True, transport_security=trusted)
    (found,) = (served_route for served_route in served.routes if isinstance(served_route, Route))
    # No GET: its stream might stay open for ever.
    endpoint = OwnOrigin(Bounded(found.endpoint, mcp_limits), settings, keyed=keyed)
    app.router.routes.append(Route("/mcp", endpoint, methods=["POST"]))
    return server.session_manager.run


async def _client_gone(http: Request, error: Exception) -> Response:
    return Response(status_code=_CLIENT_CLOSED)
