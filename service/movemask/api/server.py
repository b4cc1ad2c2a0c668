"""Runs the web service: checks the settings, opens the port, and runs one process or several workers."""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
import logging
import os
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from threading import Event
from typing import Any, NoReturn, cast

import uvicorn
from prometheus_client import multiprocess

from movemask import logs
from movemask.api.app import create_app
from movemask.api.connections import Connection, ConnectionTracker
from movemask.api.keys import Keys
from movemask.api.services import audit_plan
from movemask.api.telemetry import MULTIPROCESS_DIR, Metrics
from movemask.errors import MovemaskError, SettingsError
from movemask.network.onnx import provider_named
from movemask.processes import Report, end_with_parent, supervise
from movemask.settings import Settings
from movemask.store.writer import Store

log = logging.getLogger(__name__)

_BACKLOG = 2048  # uvicorn's own
_NO_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # such as ::1 without IPv6
#: Time that a worker gets after `drain_seconds` to write its audit records and close.
_CLOSING_SECONDS = 5


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Raises MovemaskError if the service cannot start, with any number of workers."""
    stopping = _exit_on_signals()
    logs.configure(settings.log_level, settings.log_format)
    settings.model_folders.files(settings.default_model)
    audit_plan(settings)
    provider_named(settings.provider)
    keys = Keys.of(settings)
    _check_tls(settings)
    _allow_descriptors()
    listeners = listen(settings.host, settings.port)
    try:
        _prepare_database(settings.database_url)
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        scheme = "https" if settings.tls_cert else "http"
        log.info("listening on %s://%s:%d", scheme, shown, listeners[0].getsockname()[1])
        addresses = [ipaddress.ip_address(one.getsockname()[0].partition("%")[0]) for one in listeners]
        if keys is None and not all(address.is_loopback for address in addresses):
            log.warning(
                "NO API KEYS ARE SET: whoever reaches this address may use the service, read the positions that others "
                "ask about, and read the metrics; set MOVEMASK_API_KEYS_FILE (docs/security.md)"
            )
        if settings.workers == 1:
            with suppress(SystemExit):
                asyncio.run(_run(settings, listeners, stopping))
        elif not stopping.is_set():
            _run_workers(settings, listeners)
    finally:
        _close(listeners)


def _close(listeners: Sequence[socket.socket]) -> None:
    for listener in listeners:
        listener.close()


def _allow_descriptors() -> None:
    """Raises the limit of open files as far as the system lets this process: each connection takes one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 65_536, hard))


def _prepare_database(url: str) -> None:
    """Opens the database before the workers do: only one process at a time can change a new SQLite file to WAL.

    Raises StoreError if it cannot be used.
    """
    store = Store(url, keep_seconds=1, keep_positions=1, keep_worst=1)
    if store.unreachable:
        log.error("%s; positions are answered, and audit records wait", store.unreachable)
    store.close()


def listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets for the addresses of `host`; raises SettingsError if there are none, or the port is in use.

    They listen at once, so that of two services started together one fails. Connections wait until a worker serves.
    """
    listeners: list[socket.socket] = []
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(addresses):
            bound = listeners[0].getsockname()[1] if listeners else port  # with port 0, the port of the first
            try:
                listener = socket.create_server((address[0], bound, *address[2:]), family=family, backlog=_BACKLOG)
            except OSError as error:
                if error.errno in _NO_ADDRESS:
                    continue
                raise
            # Accepted connections inherit it. Else a body waits 40 ms for the client to acknowledge the head before it.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listeners.append(listener)
    except OSError as error:
        _close(listeners)
        name = "MOVEMASK_HOST" if isinstance(error, socket.gaierror) else "MOVEMASK_PORT"
        reason = error.strerror if isinstance(error, socket.gaierror) or not error.errno else os.strerror(error.errno)
        raise SettingsError(f"{name}: cannot listen on {host}:{port}: {str(reason).lower()}") from None
    if not listeners:
        raise SettingsError(f"MOVEMASK_HOST: {host!r} has no address of this machine")
    return listeners


def _check_tls(settings: Settings) -> None:
    """Raises SettingsError if the certificate or its key cannot be used."""
    if settings.tls_cert is None:
        if settings.tls_key is not None:
            raise SettingsError("MOVEMASK_TLS_KEY: needs MOVEMASK_TLS_CERT")
        return

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key, password="")
    except OSError as error:  # ssl's errors are OSErrors
        fault = f"{settings.tls_cert} and its key cannot be read: {error.strerror} (no password is taken)"
        raise SettingsError(f"MOVEMASK_TLS_CERT: {fault}") from None


async def _run(
    settings: Settings, listeners: Sequence[socket.socket], stopping: Event, report: Report | None = None
) -> None:
    """Runs one process of the service until a stop signal; then finishes requests and writes audit records.

    `stopping` is set if a signal came before uvicorn handles them.
    """
    app = create_app(settings)
    metrics: Metrics = app.state.metrics
    logs.configure(settings.log_level, settings.log_format, dropped=metrics.log_dropped.inc)

    def looked(connections: int) -> None:  # from the event loop, so that a stuck one is noticed
        metrics.connections.set(connections)
        if report:
            report.alive()

    tracker = ConnectionTracker(settings, looked, lambda: server.should_exit)
    config = uvicorn.Config(
        app,
        lifespan="off",  # entered below, where its errors can be caught; uvicorn would log a traceback
        log_config=None,  # create_app configures the logs
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
    async with AsyncExitStack() as stack:
        stack.callback(logging.shutdown)  # uvicorn ends workers with a signal, which skips logging's own
        await stack.enter_async_context(app.router.lifespan_context(app))
        # Exempt startup objects from garbage collection, and collect less often: a batch creates ten thousand small
        # objects, none of them in a cycle.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        # A thread that answers a batch hands over to the event loop ten times as often as by default: a single request
        # changes threads four times.
        sys.setswitchinterval(0.0005)
        server = uvicorn.Server(config)
        server.should_exit = stopping.is_set()
        watching = asyncio.create_task(tracker.watch())
        with suppress(SystemExit):  # uvicorn raises the signal again after a graceful stop
            await server.serve(list(listeners))
        watching.cancel()
        tracker.close()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the last writes


def _exit_on_signals() -> Event:
    """Makes SIGTERM and Ctrl-C exit with 0; uvicorn installs its own handlers while it serves.

    The event is set by the first of them: an exception in a callback of the garbage collector is lost.
    """
    stopping = Event()

    def leave(*_: object) -> NoReturn:
        stopping.set()
        sys.exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    return stopping


def _run_workers(settings: Settings, listeners: Sequence[socket.socket]) -> None:
    try:
        folder = tempfile.TemporaryDirectory(prefix="movemask-metrics-")
    except OSError:
        raise SettingsError(
            "MOVEMASK_WORKERS: several workers share their metrics through a temporary folder, and there is none that "
            "can be written; set TMPDIR, or in Docker add --tmpfs /tmp"
        ) from None
    with folder as path:
        os.environ[MULTIPROCESS_DIR] = path
        supervise(
            partial(_work, settings, listeners),
            settings.workers,
            stuck_seconds=settings.worker_timeout_seconds,
            stop_seconds=settings.drain_seconds + _CLOSING_SECONDS,
            stopping=partial(_close, listeners),  # the system would take connections for as long as one holds them
            # Drops the gauges of a dead worker; its counters still count.
            ended=lambda pid: multiprocess.mark_process_dead(pid, path),  # type: ignore[no-untyped-call]
        )


def _work(settings: Settings, listeners: Sequence[socket.socket], report: Report) -> None:
    """The main function of a worker process."""
    end_with_parent(settings.drain_seconds + _CLOSING_SECONDS)
    stopping = _exit_on_signals()
    try:
        with suppress(SystemExit):
            asyncio.run(_run(settings, listeners, stopping, report))
    except MovemaskError as error:
        report.failed(str(error))
        sys.exit(1)
