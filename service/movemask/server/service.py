"""`run_service`: `movemask serve`. Checks the settings, opens the port and supervises the workers.

This process stays small. The process from which workers are forked imports `movemask.server.worker`, once.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from functools import partial

from movemask.errors import SettingsError
from movemask.server import logs
from movemask.server.keys import Keys
from movemask.server.listening import Listener, Port
from movemask.server.settings import Settings
from movemask.server.shared_metrics import SharedMetrics
from movemask.server.signals import exit_at_once, stop_signals
from movemask.server.supervisor import FORKS, Place, Workers
from movemask.server.tally import new_table

log = logging.getLogger(__name__)

#: A worker is killed and replaced if its event loop or its network is stuck for this long.
STUCK_SECONDS = 30.0

#: Seconds that a worker has after `drain_seconds` to write its audit records.
_CLOSING_SECONDS = 5


def run_service(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Raises MovemaskError if the service cannot start."""
    exit_at_once()
    logs.configure(settings.log_level, settings.log_format)
    settings.model_folders.files(settings.default_model)
    keys = Keys.of(settings)
    _check_tls(settings)
    _allow_descriptors()
    workers = settings.worker_processes if FORKS else 1
    with closing(Port(settings.host, settings.port, workers)) as port:
        address = _address(settings, port)
        log.info("starting on %s", address)
        _warn_without_keys(port, keyed=keys is not None)
        ready = partial(log.info, "listening on %s", address)
        if FORKS:
            _supervise(settings, workers, port, ready)
        else:  # Windows: one process
            from movemask.server import worker

            listeners = [Listener(found.detach()) for found in port.sockets(alone=True)]
            asyncio.run(worker.serve_app(settings, listeners, ready=ready))


def _address(settings: Settings, port: Port) -> str:
    """Where the service listens, such as `http://127.0.0.1:8000`."""
    if port.file is not None:
        return settings.host
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'https' if settings.tls_cert else 'http'}://{shown}:{port.addresses[0][1]}"


def _warn_without_keys(port: Port, *, keyed: bool) -> None:
    addresses = [ipaddress.ip_address(address.partition("%")[0]) for address, _ in port.addresses]
    if not keyed and not all(address.is_loopback for address in addresses):
        log.warning(
            "NO API KEYS ARE SET: anyone who can reach this address may use the service, read the positions that "
            "others ask about, and read the metrics; set MOVEMASK_API_KEYS_FILE (docs/security.md)"
        )


def _allow_descriptors() -> None:
    """Raises this process's limit of open files as far as allowed: each connection needs one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 65_536, hard))


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


def _supervise(settings: Settings, count: int, port: Port, ready: Callable[[], None]) -> None:
    grace = settings.drain_seconds + _CLOSING_SECONDS
    with (
        stop_signals() as stop,
        closing(SharedMetrics(count)) if count > 1 else nullcontext() as metrics,
        new_table(count) as table,
    ):
        workers = Workers(
            ["movemask.server.forkserver", "movemask.server.worker"],
            partial(_run_worker, settings, count, grace),
            count,
            table,
            port,
            prepare=metrics.prepare if metrics is not None else lambda worker: None,
            ready=ready,
            stuck_seconds=STUCK_SECONDS,
            stop_seconds=grace,
        )
        workers.supervise(stop)


def _run_worker(settings: Settings, count: int, grace: float, place: Place) -> None:
    from movemask.server import worker  # here, so that the supervisor stays small

    worker.run_worker(settings, count, grace, place)
