"""Runs the web service: the settings checked, the port taken, and then one process or several that share it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from threading import Event
from typing import NoReturn

import uvicorn
from prometheus_client import multiprocess

from service import logs
from service.api.app import create_app
from service.api.connections import Connection
from service.api.metrics import MULTIPROCESS_DIR
from service.api.services import audit_plan
from service.audit.store import Store
from service.errors import MovemaskError, SettingsError
from service.inference.onnx import provider_named
from service.inference.registry import contract_files
from service.processes import Report, end_with_parent, supervise
from service.settings import Settings

log = logging.getLogger(__name__)

_BACKLOG = 2048  # uvicorn's own
_NO_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # as ::1 of localhost where there is no IPv6
_REPORT_SECONDS = 0.5
#: What a worker gets beyond `drain_seconds` to write its audit records and close.
_CLOSING_SECONDS = 5


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Raises MovemaskError if the service cannot start, with any number of workers."""
    asked = _exit_on_signals()
    logs.configure(settings.log_level, settings.log_format)
    contract_files(settings.models_dir, settings.default_model)
    audit_plan(settings)
    provider_named(settings.provider)
    listeners = listen(settings.host, settings.port)
    try:
        _prepare_database(settings.database_url)
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        log.info("listening on http://%s:%d", shown, listeners[0].getsockname()[1])
        if settings.workers == 1:
            asyncio.run(_run(settings, listeners, asked))
        elif not asked.is_set():
            _run_workers(settings, listeners)
    finally:
        for listener in listeners:
            listener.close()


def _prepare_database(url: str) -> None:
    """Brings the tables up to date, once for all workers; StoreError if the database cannot be used."""
    store = Store(url, keep_seconds=1, keep_positions=1, keep_worst=1)
    if store.unreachable:
        log.error("%s; positions are answered, and audit records wait", store.unreachable)
    store.close()


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on the addresses of `host`; SettingsError if there are none, or the port is in use.

    They listen from here on, so of two services that start at once one is told. Connections wait until a worker serves.
    """
    found: list[socket.socket] = []
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(addresses):
            there = found[0].getsockname()[1] if found else port  # that port 0 has taken for the first
            try:
                one = socket.create_server((address[0], there, *address[2:]), family=family, backlog=_BACKLOG)
            except OSError as error:
                if error.errno in _NO_ADDRESS and (found or len(addresses) > 1):
                    continue
                raise
            found.append(one)
    except OSError as error:
        for listener in found:
            listener.close()
        name = "MOVEMASK_HOST" if isinstance(error, socket.gaierror) or error.errno in _NO_ADDRESS else "MOVEMASK_PORT"
        reason = error.strerror if isinstance(error, socket.gaierror) or not error.errno else os.strerror(error.errno)
        raise SettingsError(f"{name}: cannot listen on {host}:{port}: {str(reason).lower()}") from None
    if not found:
        raise SettingsError(f"MOVEMASK_HOST: {host!r} has no address of this machine")
    return found


async def _run(
    settings: Settings, listeners: Sequence[socket.socket], asked: Event, report: Report | None = None
) -> None:
    """One process of the service, until a signal to stop; not at all if there was one, as `asked` says. Requests under
    way and audit records are seen to first."""
    app = create_app(settings, own_process=True)
    config = uvicorn.Config(
        app,
        lifespan="off",  # entered here, where what it raises is still one of our errors and not a logged traceback
        log_config=None,  # create_app configures the logs of its process
        access_log=False,
        timeout_graceful_shutdown=settings.drain_seconds,
        server_header=False,
        http=Connection,
    )
    async with app.router.lifespan_context(app):
        reporting = asyncio.create_task(_reporting(report)) if report else None
        server = uvicorn.Server(config)
        server.should_exit = asked.is_set()
        with suppress(SystemExit):  # uvicorn stops in order, and then raises the signal that it stopped for again
            await server.serve(list(listeners))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut short what is written now
        if reporting:
            reporting.cancel()


def _exit_on_signals() -> Event:
    """SIGTERM and Ctrl-C end the process with 0, at any time; uvicorn has handlers of its own while it serves.

    The event is set by the first of them: what is raised in a callback of the garbage collector goes no further.
    """
    asked = Event()

    def leave(*_: object) -> NoReturn:
        asked.set()
        sys.exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    return asked


async def _reporting(report: Report) -> None:
    """Reports from the event loop, so that a loop that is stuck is noticed."""
    while True:
        report.alive()
        await asyncio.sleep(_REPORT_SECONDS)


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
            # Its gauges no longer count; its counters still do.
            ended=lambda pid: multiprocess.mark_process_dead(pid, path),  # type: ignore[no-untyped-call]
        )


def _work(settings: Settings, listeners: Sequence[socket.socket], report: Report) -> None:
    """A worker process."""
    end_with_parent(settings.drain_seconds + _CLOSING_SECONDS)
    asked = _exit_on_signals()
    try:
        asyncio.run(_run(settings, listeners, asked, report))
    except MovemaskError as error:
        report.failed(str(error))
        sys.exit(1)
