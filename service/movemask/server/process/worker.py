"""`WorkerApp`: what a worker process runs: the app behind the guard of its connections."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack

from starlette.types import Message, Receive, Scope, Send

from movemask.errors import MovemaskError
from movemask.server import logs
from movemask.server.app import create_app
from movemask.server.edge.guard import ConnectionLimits, GuardedApp, Guards
from movemask.server.edge.rates import Rates
from movemask.server.metrics import Metrics
from movemask.server.process.listening import on_loop_error
from movemask.server.queue.served_models import Needed
from movemask.server.settings import Settings

log = logging.getLogger(__name__)

#: A worker ends itself, with a traceback, if its event loop is stuck for this many seconds.
STUCK_SECONDS = 30


class WorkerApp:
    """ASGI app of a worker. Raises MovemaskError if the settings do not allow it.

    guards : of its connections
    """

    def __init__(self, settings: Settings, rates: Rates, needed: Needed, stopping: Callable[[], bool]) -> None:
        self._app = create_app(settings, rates=rates, needed=needed)
        limits = ConnectionLimits(
            connections=settings.max_connections,
            of_an_address=None if settings.proxies else settings.max_connections_per_address,
            head_seconds=settings.head_seconds,
            body_seconds=settings.body_seconds,
            read_seconds=settings.read_seconds,
        )
        self.guards = Guards(limits, rates.processes, self._looked, stopping)
        self._guarded = GuardedApp(self._app)
        self._running = ExitStack()

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
            if message["type"] == "lifespan.startup.complete":
                self._begin()
            elif message["type"] == "lifespan.startup.failed" and isinstance(error := sys.exception(), MovemaskError):
                message = {**message, "message": str(error)}  # for the log, without a traceback
            await send(message)
            if message["type"] == "lifespan.shutdown.complete":
                log.info("worker has finished")
                self._running.close()

        await self._app(scope, received, sent)

    def _begin(self) -> None:
        """When the models are loaded, before the first request."""
        # Exempt startup objects from garbage collection, and collect less often: a batch makes ten thousand small
        # objects without cycles. With the default of 700, a request costs 8 to 18 % more.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000)
        # GIL switch interval 0.5 ms (default 5): the event loop and the network's threads hand requests to each other.
        sys.setswitchinterval(0.0005)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(on_loop_error)
        self._running.enter_context(logs.written_by_a_thread())
        self._watching = loop.create_task(self.guards.watch())

    def _end(self) -> None:
        """When all requests are answered, or their time is over."""
        self._watching.cancel()
        faulthandler.cancel_dump_traceback_later()
        self.guards.close()

    def _looked(self, connections: int) -> None:
        """Twice a second, from the event loop, so that a stuck one is noticed."""
        faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
        metrics: Metrics = self._app.state.metrics
        metrics.looked(connections)
