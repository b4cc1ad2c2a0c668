"""`run_worker`: the main function of a worker process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, cast

import uvicorn
from starlette.types import Message

from movemask.errors import MovemaskError
from movemask.parent import end_with_parent
from movemask.server import logs, shared_metrics, telemetry
from movemask.server.app import create_app
from movemask.server.guard import GuardedApp, Guards
from movemask.server.listening import AT_ONCE, Listener, on_loop_error
from movemask.server.settings import Settings
from movemask.server.signals import exit_at_once, on_stop
from movemask.server.state import Services
from movemask.server.supervisor import Place
from movemask.server.tally import ALIVE, Tally
from movemask.server.telemetry import Metrics

#: Most listening sockets of a worker.
_MOST_SOCKETS = 64


def run_worker(settings: Settings, workers: int, grace: float, place: Place) -> None:
    """Serves until SIGTERM, as one of `workers` processes. Ends `grace` seconds after its parent at the latest."""
    exit_at_once()
    end_with_parent(grace)
    _, (table, *sockets), _, _ = socket.recv_fds(place.channel, 1, 1 + _MOST_SOCKETS)
    tally = Tally(table, workers, place.number)
    os.close(table)
    listeners = [Listener(descriptor) for descriptor in sockets]
    try:
        asyncio.run(serve_app(settings, listeners, tally, place.number))
    except MovemaskError as error:
        place.channel.sendall(str(error).encode())
        sys.exit(1)


async def serve_app(
    settings: Settings,
    listeners: Sequence[socket.socket],
    tally: Tally | None = None,
    number: int = 0,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serves the app on the listeners until a stop signal; then finishes requests and writes audit records.

    `ready` is called once, when the app can answer. `tally` is None for the only process of a service. A signal before
    the app serves ends the process at once.
    """
    logs.configure(settings.log_level, settings.log_format)  # first: without a handler, libraries install their own
    asyncio.get_running_loop().set_exception_handler(on_loop_error)
    tally = Tally() if tally is None else tally
    if shared_metrics.FOLDER in os.environ:
        telemetry.share_metrics(number)
    app = create_app(settings, tally=tally)
    metrics: Metrics = app.state.metrics
    logs.configure(settings.log_level, settings.log_format, dropped=metrics.log_dropped.inc)

    def looked(connections: int) -> None:  # from the event loop, so that a stuck one is noticed
        services: Services = app.state.services
        if not services.models.faults():
            tally.put(ALIVE, time.monotonic())
        metrics.looked(connections)

    guards = Guards(settings, tally, looked, lambda: server.should_exit)
    config = uvicorn.Config(
        GuardedApp(app),
        lifespan="off",  # run below, where errors are caught; uvicorn would log a traceback
        log_config=None,
        access_log=False,
        backlog=AT_ONCE,
        timeout_graceful_shutdown=settings.drain_seconds,
        server_header=False,
        proxy_headers=False,  # `AdmissionControl` reads them
        timeout_keep_alive=cast(int, settings.keep_alive_seconds),
        ws="none",
        http=cast(Any, guards.protocol),
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    server = uvicorn.Server(config)

    async def lifespan() -> AsyncGenerator[Message]:
        yield {"type": "lifespan.startup"}
        # Exempt startup objects from garbage collection, and collect less often: a batch creates ten thousand small
        # objects without cycles.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        # GIL switch interval 0.5 ms (default 5): the event loop and the network's threads hand requests to each other.
        sys.setswitchinterval(0.0005)
        on_stop(lambda: setattr(server, "should_exit", True))  # uvicorn handles signals itself, and raises them again
        watching = asyncio.create_task(guards.watch())
        ready()
        await server.serve(list(listeners))
        watching.cancel()
        guards.close()
        yield {"type": "lifespan.shutdown"}

    async def ignore(message: Message) -> None:
        pass

    try:
        # By ASGI's lifespan messages, at which FastAPI configures and flushes OpenTelemetry's exporter.
        await app({"type": "lifespan", "asgi": {"version": "3.0"}}, lifespan().__anext__, ignore)
    finally:
        logging.shutdown()  # multiprocessing skips it
