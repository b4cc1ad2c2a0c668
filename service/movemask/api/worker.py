"""A worker process: the app on uvicorn, answering the connections that the supervisor hands over."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Any, cast

import uvicorn
from starlette.types import Message

from movemask import logs
from movemask.api.acceptor import DRAINING, HANDED, TOLD, TOO_MANY, TOO_MANY_OF_ADDRESS
from movemask.api.app import create_app
from movemask.api.connections import Connection, ConnectionTracker
from movemask.api.state import Services
from movemask.api.telemetry import Metrics
from movemask.errors import MovemaskError
from movemask.processes import Place, Report, end_with_parent, exit_on_signals
from movemask.settings import Settings
from movemask.tally import Tally

log = logging.getLogger(__name__)

_HANDED_AT_ONCE = 64


def work(settings: Settings, processes: int, grace: float, place: Place) -> None:
    """The main function of a worker, one of so many `processes`; it ends `grace` seconds after its parent.

    The first thing that the channel has is the table of the service's `Tally`.
    """
    end_with_parent(grace)
    stopping = exit_on_signals()
    try:
        _, descriptors, _, _ = socket.recv_fds(place.channel, HANDED.size, 1)
        tally = Tally(descriptors[0], processes, place.number)
        os.close(descriptors[0])
        with suppress(SystemExit):
            asyncio.run(serve(settings, stopping, tally, place.report, place.channel))
    except MovemaskError as error:
        place.report.failed(str(error))
        sys.exit(1)


class Handed(uvicorn.Server):
    """A server without listeners: its connections come through a channel from the supervisor."""

    def __init__(self, config: uvicorn.Config, tracker: ConnectionTracker, channel: socket.socket) -> None:
        super().__init__(config)
        self._tracker, self._channel = tracker, channel
        self._unsent = bytearray()
        self._opening: set[asyncio.Task[None]] = set()
        tracker.on_leave = self._ended

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self._channel.setblocking(False)
        asyncio.get_running_loop().add_reader(self._channel, self._take)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._tell(DRAINING)  # the supervisor ends the channel; until then connections may be on their way
        await super().shutdown(sockets=[])

    def _take(self) -> None:
        """Takes the connections that wait in the channel."""
        for _ in range(_HANDED_AT_ONCE):
            try:
                head, descriptors, _, _ = socket.recv_fds(self._channel, HANDED.size, 1)
            except BlockingIOError:
                return
            except OSError:
                head = b""
            if not head:
                asyncio.get_running_loop().remove_reader(self._channel)
                return
            number, verdict = HANDED.unpack(head)
            self._tell(number)
            if not descriptors:  # this process has no more of them
                self._tell(number)
                continue
            connection = socket.socket(fileno=descriptors[0])
            connection.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._open(connection, number, verdict))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket, number: int, verdict: int) -> None:
        config = self.config
        made = config.http_protocol_class(config=config, server_state=self.server_state, app_state={})  # type: ignore[call-arg]
        protocol = cast(Connection, made)
        protocol.number, protocol.refused = number, self._why(verdict)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connection, ssl=config.ssl)
        except OSError:  # no TLS, or it has gone again
            self._tell(number)

    def _why(self, verdict: int) -> str | None:
        if verdict == TOO_MANY:
            return "too many connections"
        if verdict == TOO_MANY_OF_ADDRESS:
            limit = self._tracker.settings.max_connections_per_address
            return f"too many connections from this address (limit {limit})"
        return None

    def _ended(self, connection: Connection) -> None:
        self._tell(connection.number)

    def _tell(self, number: int) -> None:
        """Tells the supervisor that a connection has been taken, or has ended."""
        self._unsent += TOLD.pack(number)
        with suppress(OSError):  # it takes nothing now: with the next; or it is gone
            del self._unsent[: self._channel.send(self._unsent)]


async def serve(
    settings: Settings,
    stopping: Event,
    tally: Tally | None = None,
    report: Report | None = None,
    channel: socket.socket | None = None,
    listeners: Sequence[socket.socket] = (),
) -> None:
    """Runs one process of the service until a stop signal; then finishes requests and writes audit records.

    `stopping` is set if a signal came before uvicorn handles them. Connections come through `channel`, or where there
    is no supervisor from `listeners`.
    """
    logs.configure(settings.log_level, settings.log_format)  # first: a library that finds no handler installs its own
    app = create_app(settings, tally=tally)
    metrics: Metrics = app.state.metrics
    logs.configure(settings.log_level, settings.log_format, dropped=metrics.log_dropped.inc)

    def looked(connections: int) -> None:  # from the event loop, so that a stuck one is noticed
        metrics.connections.set(connections)
        services: Services = app.state.services
        if report and not services.models.faults():
            report.alive()

    tracker = ConnectionTracker(settings, looked, lambda: server.should_exit)
    config = uvicorn.Config(
        app,
        lifespan="off",  # run below, where its errors can be caught; uvicorn would log a traceback
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=settings.drain_seconds,
        server_header=False,
        proxy_headers=False,  # `AdmissionControl` reads them, of as many proxies as there are
        timeout_keep_alive=cast(int, settings.keep_alive_seconds),
        ws="none",
        http=cast(Any, partial(Connection, tracker=tracker)),
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    server = uvicorn.Server(config) if channel is None else Handed(config, tracker, channel)

    async def lifespan() -> AsyncGenerator[Message]:
        yield {"type": "lifespan.startup"}
        # Exempt startup objects from garbage collection, and collect less often: a batch creates ten thousand small
        # objects, none of them in a cycle.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        # A thread that answers a batch hands over to the event loop ten times as often as by default: a single request
        # changes threads four times.
        sys.setswitchinterval(0.0005)
        server.should_exit = stopping.is_set()
        watching = asyncio.create_task(tracker.watch())
        with suppress(SystemExit):  # uvicorn raises the signal again after a graceful stop
            await server.serve(list(listeners))
        watching.cancel()
        tracker.close()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the last writes
        yield {"type": "lifespan.shutdown"}

    async def ignore(message: Message) -> None:
        pass

    try:
        # As ASGI has it: FastAPI configures OpenTelemetry's exporter, and flushes it, at these messages alone.
        await app({"type": "lifespan", "asgi": {"version": "3.0"}}, lifespan().__anext__, ignore)
    finally:
        logging.shutdown()  # uvicorn ends workers with a signal, which skips logging's own
