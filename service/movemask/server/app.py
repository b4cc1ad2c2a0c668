"""`create_app`: routes, middleware, error handlers and lifespan, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext
from functools import partial

from fastapi import FastAPI, Request, Response
from fastapi_offline import FastAPIOffline
from opentelemetry.trace import TracerProvider, get_tracer
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from movemask.network.model import Model
from movemask.server import problems
from movemask.server.api import openapi
from movemask.server.api.negotiation import Compression
from movemask.server.api.routes import audit, games, leakage, mcp, operations, page, policy
from movemask.server.api.routing import table_of
from movemask.server.edge.context import CLIENT_CLOSED, DISCONNECTION, Disconnection
from movemask.server.edge.headers import HEADERS
from movemask.server.edge.keys import Keys
from movemask.server.edge.limits import BytesInFlight, RateLimit
from movemask.server.edge.middleware import MOST_BYTES, Edge
from movemask.server.edge.shared_rates import Rates
from movemask.server.edge.sites import Sites
from movemask.server.metrics import Metrics
from movemask.server.service_state import ServiceState
from movemask.server.services import running_services
from movemask.server.settings import Settings
from movemask.version import __version__

#: Headers that pages of other origins may send: a page's own, and those that tracing libraries and MCP clients add.
_ALLOWED = (
    *("Authorization", "Content-Type", "If-None-Match", "X-Request-ID", "X-Requested-With"),
    *("traceparent", "tracestate", "baggage", "sentry-trace"),
    *("mcp-protocol-version", "mcp-session-id", "last-event-id"),
)


def create_app(
    settings: Settings | None = None,
    *,
    rates: Rates | None = None,
    state: ServiceState | None = None,
    keys: Keys | None = None,
    needed: Collection[str] | None = (),
    tracer_provider: TracerProvider | None = None,
    prepare: Callable[[Model], Model] | None = None,
) -> FastAPI:
    """Returns the app. Models, ledger and threads are created in its lifespan.

    Parameters
    ----------
    settings : those of the environment if None
    rates, state : of the service, which its workers share; None for its only process
    keys : the API keys; None: those that the settings name
    needed : as of `ServedModels`
    tracer_provider : where spans go; by default OpenTelemetry's variables decide
    prepare : as in `running_services`
    """
    settings = Settings.read() if settings is None else settings
    rates = Rates() if rates is None else rates
    keys = Keys.of(settings.listed_keys, settings.api_keys_file) if keys is None else keys
    metrics = Metrics(state)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with running_services(settings, metrics, rates, needed, prepare) as services:
            app.state.services = services
            async with sessions(), aclosing(services.engine):
                yield

    # FastAPIOffline serves the scripts and styles of /docs itself, without a CDN.
    app: FastAPI = FastAPIOffline(
        title="movemask",
        version=__version__,
        description=openapi.DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,  # a POST that is redirected may lose its body
        redoc_url=None,
        # In the order in which they are tried: those that are asked most come first.
        routes=[
            *(*policy.routes, *games.routes, *audit.routes, *leakage.routes),
            *(*operations.model_routes, *operations.keyed_routes, *operations.routes),
            *(page.routes if settings.page else ()),
            *openapi.routes,
        ],
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
    sites = Sites(settings.hosts(keyed=keys is not None), settings.origins)
    sessions = mcp.install(app, sites) if settings.mcp else nullcontext
    table = table_of(app.routes, undeclared=openapi.documents)
    openapi.install(app, table, keyed=keys is not None)
    problems.install_handlers(app, metrics.problem)
    app.add_exception_handler(ClientDisconnect, _client_gone)
    # The last one is the outermost.
    app.add_middleware(Compression)
    app.add_middleware(
        Edge,
        keys=keys,
        metrics=metrics,
        rate=RateLimit(settings.client_rate, settings.client_burst, rates),
        in_flight=in_flight,
        tracer=get_tracer("movemask", __version__, tracer_provider),
        proxies=settings.proxies,
        sites=sites,
        routes=table,
        cors=_cors(settings.origins),
    )
    return app


def _cors(origins: Sequence[str]) -> Callable[[ASGIApp], ASGIApp]:
    """Wraps an app, so that pages of these origins may call it and read its answers."""
    if not origins:
        return lambda app: app
    return partial(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=_ALLOWED,
        expose_headers=[header.name for header in HEADERS if header.exposed],
    )


async def _client_gone(http: Request, error: Exception) -> Response:
    connection: Disconnection | None = http.scope.get(DISCONNECTION)
    return Response(status_code=CLIENT_CLOSED if connection is None else connection.status)
