"""The app: what is put together, in which order."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

from fastapi import Depends, FastAPI, Request, Response
from fastapi_offline import FastAPIOffline
from opentelemetry.trace import TracerProvider, get_tracer
from starlette.requests import ClientDisconnect

from movemask import __version__, logs
from movemask.api import problems
from movemask.api.direct import Direct
from movemask.api.disconnect import ClientGone
from movemask.api.metrics import Metrics
from movemask.api.middleware import BodyGuard, Counted
from movemask.api.parameters import known_parameters
from movemask.api.routers import audit, games, leakage, models, operations, policy
from movemask.api.services import running_services
from movemask.inference.model import Model
from movemask.settings import Settings

DESCRIPTION = """
The move distribution of a chess policy network, with every bit of probability on legal moves; and what an
unmasked or wrongly
masked softmax would have leaked to illegal ones. Errors are `application/problem+json` (RFC 9457), with a
stable `type` and a `detail` that names the offending input.
"""

#: nginx's status for a request whose client closed the connection; nobody reads it but the metrics.
_CLIENT_CLOSED = 499


def create_app(
    settings: Settings | None = None,
    *,
    own_process: bool = False,
    tracer_provider: TracerProvider | None = None,
    prepare: Callable[[Model], Model] | None = None,
) -> FastAPI:
    """The app, with `settings` or those of the environment. Models, store and threads are made in its lifespan.

    Spans go to `tracer_provider`, or to the one that OpenTelemetry's own variables configure. `prepare` as in
    `runtime.running`.
    """
    chosen = Settings.read() if settings is None else settings
    metrics = Metrics()
    if own_process:
        logs.configure(chosen.log_level, chosen.log_format, dropped=metrics.log_dropped.inc)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with ExitStack() as stack:
            if own_process:
                stack.callback(logs.finish)
            services = stack.enter_context(running_services(chosen, metrics, prepare))
            app.state.services = services
            if own_process:
                # What was made by now stays for good and need not be looked through again and again; and a batch makes
                # ten thousand small objects, none in a circle, before any is freed.
                gc.collect()
                gc.freeze()
                gc.set_threshold(50_000, 20, 50)
            yield

    # FastAPIOffline serves the page's own script and style, so that /docs works where no CDN can be reached.
    app: FastAPI = FastAPIOffline(
        title="movemask",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        responses=problems.documented(422),
        dependencies=[Depends(known_parameters)],
        # Prometheus has the metrics, standard error the logs; its own steps are below the queue and the network.
        telemetry={
            "tracer_provider": tracer_provider,
            "auto_configure": True,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
        },
    )
    for router in (policy.router, games.router, audit.router, leakage.router, models.router, operations.router):
        app.include_router(router)
    problems.install(app, metrics.problem)
    app.add_exception_handler(ClientGone, _client_gone)
    app.add_exception_handler(ClientDisconnect, _client_gone)  # in the middle of its body
    direct = (*policy.DIRECT, *games.DIRECT, *audit.DIRECT)
    app.add_middleware(Direct, routes=direct)
    app.add_middleware(BodyGuard, routes=direct, settings=chosen, metrics=metrics)
    app.add_middleware(Counted, metrics=metrics, tracer=get_tracer("movemask", __version__, tracer_provider))
    return app


async def _client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=_CLIENT_CLOSED)
