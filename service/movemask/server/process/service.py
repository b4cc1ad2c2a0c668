"""`run_service`: `movemask serve`. Checks the settings, opens the port and supervises the workers.

This process stays small: the workers import the app.
"""

from __future__ import annotations

import ipaddress
import logging
import os
from contextlib import ExitStack, closing, suppress
from functools import partial

from movemask.server import logs
from movemask.server.edge.keys import Keys
from movemask.server.edge.shared_rates import Rates
from movemask.server.metrics_files import METRICS_FOLDER, forget_gauges
from movemask.server.process.listening import Port, check_tls
from movemask.server.process.reloads import write_reloads
from movemask.server.process.running_services import runtime_folder
from movemask.server.process.signals import exit_at_once
from movemask.server.process.supervisor import Supervisor
from movemask.server.process.worker_process import spawn_worker
from movemask.server.process.worker_start import WorkerStart
from movemask.server.service_state import shared_state
from movemask.server.settings import Settings

log = logging.getLogger(__name__)


def run_service(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Raises MovemaskError if the service cannot start."""
    exit_at_once()
    logs.configure(settings.log_level, settings.log_format)
    try:
        _run(settings)
    finally:
        logs.flush()


def _run(settings: Settings) -> None:
    settings.model_folders.files(settings.default_model)
    engine = settings.engine_program
    keys = _read(settings)
    _allow_descriptors()
    workers = settings.worker_processes if hasattr(os, "fork") else 1  # Windows: one
    with ExitStack() as stack:
        port = stack.enter_context(closing(Port(settings.host, settings.port, workers)))
        address = _address(settings, port)
        log.info(
            "starting on %s, %s",
            address,
            f"with the engine {engine}" if engine else "without an engine",
        )
        _warn_without_keys(port, keyed=keys is not None)
        folder = stack.enter_context(runtime_folder(address))
        if folder is not None:
            os.environ[METRICS_FOLDER] = str(folder)
            stack.callback(os.environ.pop, METRICS_FOLDER)
        state = shared_state(workers)
        work = WorkerStart(settings, Rates(workers), state, port.sockets)
        Supervisor(
            partial(spawn_worker, work),
            state,
            keys=keys,
            read=partial(_read, settings),
            grace=work.grace,
            ready=partial(log.info, "listening on %s", address),
            stopping=port.close,
            forget=partial(forget_gauges, folder),
            report=partial(write_reloads, folder),
        ).run()


def _read(settings: Settings) -> Keys | None:
    """Returns the API keys, and checks the certificate. Raises SettingsError."""
    check_tls(settings.tls_cert, settings.tls_key)
    return Keys.of(settings.listed_keys, settings.api_keys_file)


def _address(settings: Settings, port: Port) -> str:
    """Returns where the service listens, such as `http://127.0.0.1:8000`."""
    if port.file is not None:
        return settings.host
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'https' if settings.tls_cert else 'http'}://{host}:{port.addresses[0][1]}"


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
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 65_536, hard)
            )
