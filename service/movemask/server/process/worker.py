"""`run_worker`: serves, in a worker process; `WorkerApp`: the app behind the guard of its connections."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from movemask.errors import MovemaskError
from movemask.server import logs
from movemask.server.app import create_app
from movemask.server.edge.guard import ConnectionLimits, GuardedApp, Guards
from movemask.server.edge.limits import BytesInFlight
from movemask.server.edge.shared_rates import Rates
from movemask.server.metrics import share_metrics
from movemask.server.process.listening import AT_ONCE, Sockets, check_tls, on_loop_error
from movemask.server.process.worker_process import Order
from movemask.server.service_state import ServiceState
from movemask.server.services import Services
from movemask.server.settings import Settings

log = logging.getLogger(__name__)

#: A worker ends itself, with a traceback, if its event loop is stuck for this many seconds.
STUCK_SECONDS = 30


def run_worker(
    settings: Settings,
    rates: Rates,
    state: ServiceState,
    sockets: Sockets,
    order: Order,
    send: Callable[[object], None],
) -> None:
    """Serves until SIGTERM. `send` gets the digest of each served model when the worker serves, or why it cannot.
    Raises MovemaskError if the settings do not allow it."""
    check_tls(settings.tls_cert, settings.tls_key)
    share_metrics(order.number, len(settings.model_folders.files(settings.default_model)))
    limits = ConnectionLimits(
        connections=settings.max_connections,
        of_an_address=None if settings.proxies else settings.max_connections_per_address,
        head_seconds=settings.head_seconds,
        body_seconds=settings.body_seconds,
        read_seconds=settings.read_seconds,
    )
    app = WorkerApp(
        create_app(settings, rates=rates, state=state, keys=order.keys, needed=order.needed),
        limits,
        rates.processes,
        sockets,
        send,
        partial(state.set_clock, order.number),
    )
    config = uvicorn.Config(
        app,
        workers=1,
        loop="asyncio",
        http=cast(Any, app.guards.protocol),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        backlog=AT_ONCE,
        timeout_graceful_shutdown=settings.drain_seconds,
        timeout_keep_alive=cast(int, settings.keep_alive_seconds),
        server_header=False,
        root_path=settings.root_path,
        proxy_headers=False,  # `Edge` reads them: uvicorn trusts addresses, not a number of proxies
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    uvicorn.Server(config).run(sockets=[*sockets.bind()])


class WorkerApp:
    """ASGI app of a worker: an app behind the guard of its connections.

    send : gets the digest of each served model when the worker serves, or why it cannot
    set_clock : gets the time now and then, from the event loop
    guards : of the connections
    """

    def __init__(
        self,
        app: FastAPI,
        limits: ConnectionLimits,
        processes: int,
        sockets: Sockets,
        send: Callable[[object], None],
        set_clock: Callable[[float], None],
    ) -> None:
        self._app, self._sockets, self._send, self._set_clock = app, sockets, send, set_clock
        in_flight: BytesInFlight = app.state.in_flight
        self.guards = Guards(
            limits,
            processes,
            self._update,
            lambda: sockets.closed,
            app.state.metrics.problem,
            lambda: in_flight.least_pace,
        )
        self._guarded = GuardedApp(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._guarded(scope, receive, send)
            return

        async def received() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self._end()
            return message

        async def sent(message: Message) -> None:
            try:
                if message["type"] == "lifespan.startup.complete":
                    self._begin()
                elif message["type"] == "lifespan.startup.failed" and isinstance(
                    error := sys.exception(), MovemaskError
                ):
                    raise error
            except MovemaskError as error:
                self._send(str(error))
                logs.flush()
                os._exit(1)  # uvicorn would log two lines of its own
            await send(message)
            if message["type"] == "lifespan.shutdown.complete":
                log.info("worker has finished")
                logs.flush()  # uvicorn ends the process by the signal that it got

        await self._app(scope, received, sent)

    def _begin(self) -> None:
        """Starts to listen, when the models are loaded."""
        # Exempt startup objects from garbage collection, and collect less often: a batch makes ten thousand small
        # objects without cycles. With the default of 700, a request costs 8 to 18 % more.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000)
        # GIL switch interval 0.5 ms (default 5): the event loop and the network's threads hand requests to each other.
        sys.setswitchinterval(0.0005)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(on_loop_error)
        self._watching = loop.create_task(self.guards.watch())
        logs.await_each_line(0)
        self._sockets.listen()
        services: Services = self._app.state.services
        self._send(services.models.digests)

    def _end(self) -> None:
        """Closes the connections, when all requests are answered or their time is over."""
        self._watching.cancel()
        faulthandler.cancel_dump_traceback_later()
        self.guards.close()

    def _update(self, connections: int) -> None:
        """Notes, twice a second, that the event loop turns, and updates the gauges."""
        self._set_clock(time.monotonic())
        faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
        services: Services = self._app.state.services
        services.looked(connections)
