"""`serve`: checks the settings, opens the port, and supervises the worker processes.

This is the supervisor, which stays small: what a worker needs (`movemask.api.worker`) is imported once, by the process
that the workers are forked from.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event

from movemask import logs
from movemask.api.acceptor import HANDED, Acceptor
from movemask.api.keys import Keys
from movemask.errors import SettingsError
from movemask.processes import FORKS, Place, Worker, exit_on_signals, supervise
from movemask.settings import Settings
from movemask.tally import Tally, new_table

log = logging.getLogger(__name__)

_BACKLOG = 2048  # uvicorn's own
#: A worker whose event loop or network is stuck for this long is killed and replaced.
STUCK_SECONDS = 30.0
#: Time that a worker gets after `drain_seconds` to write its audit records and close.
_CLOSING_SECONDS = 5
_NO_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # such as ::1 without IPv6

#: Variable with the folder of the metrics that several workers share, and where it may be.
_METRICS = "PROMETHEUS_MULTIPROC_DIR"
_IN_MEMORY = "/dev/shm"


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Raises MovemaskError if the service cannot start."""
    stopping = exit_on_signals()
    logs.configure(settings.log_level, settings.log_format)
    settings.model_folders.files(settings.default_model)
    keys = Keys.of(settings)
    _check_tls(settings)
    _allow_descriptors()
    listeners = listen(settings.host, settings.port)
    try:
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        scheme = "https" if settings.tls_cert else "http"
        log.info("listening on %s://%s:%d", scheme, shown, listeners[0].getsockname()[1])
        addresses = [ipaddress.ip_address(one.getsockname()[0].partition("%")[0]) for one in listeners]
        if keys is None and not all(address.is_loopback for address in addresses):
            log.warning(
                "NO API KEYS ARE SET: anyone who can reach this address may use the service, read the positions that "
                "others ask about, and read the metrics; set MOVEMASK_API_KEYS_FILE (docs/security.md)"
            )
        if not FORKS:  # Windows: one process, which accepts itself
            from movemask.api import worker

            with suppress(SystemExit):
                asyncio.run(worker.serve(settings, stopping, listeners=listeners))
        else:
            _supervise(settings, listeners, stopping)
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


def _supervise(settings: Settings, listeners: Sequence[socket.socket], stopping: Event) -> None:
    count = settings.worker_processes
    grace = settings.drain_seconds + _CLOSING_SECONDS
    of_address = None if settings.proxies else settings.max_connections_per_address
    with _shared_metrics(count) as folder, new_table(count) as table:
        tally = Tally(table, count)
        acceptor = Acceptor(listeners, settings.max_connections, of_address)

        def begun(worker: Worker) -> None:
            socket.send_fds(worker.channel, [bytes(HANDED.size)], [table.fileno()])
            acceptor.add(worker.channel, lambda: worker.place.report.last_alive)

        def ended(worker: Worker) -> None:
            acceptor.remove(worker.channel)
            tally.clear(worker.place.number)
            if folder is not None:  # drops the gauges of a dead worker; its counters still count
                for file in os.scandir(folder):
                    if file.name.startswith("gauge_live") and file.name.endswith(f"_{worker.pid}.db"):
                        os.unlink(file)

        supervise(
            "movemask.api.worker",
            partial(_work, settings, count, grace),
            count,
            stuck_seconds=STUCK_SECONDS,
            stop_seconds=grace,
            begun=begun,
            ended=ended,
            stopping=acceptor.close,
            stopped=stopping.is_set,
        )


def _work(settings: Settings, count: int, grace: float, place: Place) -> None:
    from movemask.api import worker  # here, so that the supervisor stays small

    worker.work(settings, count, grace, place)


@contextmanager
def _shared_metrics(count: int) -> Iterator[str | None]:
    """The folder through which several workers share their metrics; None for one."""
    if count == 1:
        yield None
        return
    try:
        memory = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
        folder = tempfile.TemporaryDirectory(prefix="movemask-metrics-", dir=memory)
    except OSError:
        raise SettingsError(
            "MOVEMASK_WORKERS: several workers share their metrics through a temporary folder, and none can be "
            "written to; set TMPDIR, or in Docker add --tmpfs /tmp"
        ) from None
    with folder as path:
        os.environ[_METRICS] = path  # for the workers
        try:
            yield path
        finally:
            del os.environ[_METRICS]
