"""`Supervisor`: starts, watches, reloads and stops the workers of a service; `WorkerConfig`: what each of them runs.

Both build on uvicorn's own, which it exports and does not document: no other module touches them, and
tests/server/process/test_supervisor.py names what they rely on.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, cast

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from movemask.errors import MovemaskError, SettingsError
from movemask.parent import end_with_parent
from movemask.server import logs
from movemask.server.edge.rates import Rates
from movemask.server.metrics import METRICS_FOLDER
from movemask.server.process.listening import AT_ONCE, Port, Sockets, check_tls
from movemask.server.queue.served_models import Needed
from movemask.server.settings import Settings

log = logging.getLogger(__name__)

#: A worker that does not answer its supervisor for this many seconds is killed and replaced.
ANSWER_SECONDS = 5

#: Seconds that a reload waits for a worker's models before it gives up.
_LOADING_SECONDS = 120

#: Seconds that a worker has after `drain_seconds` to write its answers to the ledger.
_CLOSING_SECONDS = 5

#: Longest pause in seconds before a worker that cannot start is tried again.
_LONGEST_PAUSE = 30.0


class WorkerConfig(uvicorn.Config):
    """What uvicorn runs in a worker, to which it is sent.

    sockets : where the worker listens
    needed : the models without which the worker does not serve
    """

    def __init__(self, settings: Settings, rates: Rates, sockets: Sockets) -> None:
        self.settings, self.rates, self.sockets, self.needed = settings, rates, sockets, Needed.NONE
        super().__init__(
            app="",  # made in the worker
            workers=rates.processes,
            loop="asyncio",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            backlog=AT_ONCE,
            timeout_graceful_shutdown=settings.drain_seconds,
            timeout_worker_healthcheck=_LOADING_SECONDS,
            timeout_keep_alive=cast(int, settings.keep_alive_seconds),
            server_header=False,
            root_path=settings.root_path,
            proxy_headers=False,  # `Edge` reads them: uvicorn trusts addresses, not a number of proxies
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )

    @property
    def grace(self) -> float:
        """Seconds that a worker has to stop."""
        return self.settings.drain_seconds + _CLOSING_SECONDS

    def configure_logging(self) -> None:
        """uvicorn calls it first in each process."""
        logs.configure(self.settings.log_level, self.settings.log_format)

    def load(self) -> None:
        """Makes the app, in the worker. The worker exits if it cannot be made."""
        from movemask.server.process.worker import WorkerApp  # here, so that the supervisor stays small

        end_with_parent(self.grace)
        if hasattr(signal, "SIGHUP"):  # a terminal that is closed sends it to all; only the supervisor reloads
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            check_tls(self.settings.tls_cert, self.settings.tls_key)
            self.app = app = WorkerApp(self.settings, self.rates, self.needed, lambda: self.sockets.closed)
        except MovemaskError as error:
            log.error("%s", error)
            sys.exit(STARTUP_FAILURE)
        self.http = cast(Any, app.guards.protocol)
        super().load()


class Supervisor(Multiprocess):
    """uvicorn's supervisor. SIGHUP replaces the workers one after the other; a replacement that does not come to serve
    leaves the old ones as they are.

    The first worker starts alone, the others when it serves. A worker that ends, or does not answer, is replaced; a
    replacement that cannot start is tried again after a pause that grows. Workers that serve are never ended for it.

    Parameters
    ----------
    port : where the workers listen; closed at the end
    ready : called once, when the first worker serves
    """

    def __init__(self, config: WorkerConfig, port: Port, ready: Callable[[], None]) -> None:
        super().__init__(config, cast(Any, config.sockets))
        self._config, self._port, self._ready = config, port, ready
        self._served: set[int | None] = set()  # ids of workers that have come to serve
        self._again: dict[int | None, float] = {}  # when a worker that has ended is replaced, by its id
        self._pauses: dict[int, float] = {}  # before the next replacement, by the worker's place
        self._failed: Process | None = None  # the first worker, if it could not start
        self._stops = 0
        self._terminal = sys.stderr.isatty()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def run(self) -> None:
        """Returns after a stop, when all workers have ended. Raises SettingsError, or SystemExit if the worker has
        logged why, if the first worker cannot start."""
        super().run()
        if self._failed is None:
            return
        if self._failed.exitcode == STARTUP_FAILURE:
            raise SystemExit(1)
        how = _how(self._failed)
        raise SettingsError(f"a worker {how} before it could serve; the log's last line says what it was doing")

    def _stop(self, number: int, frame: object) -> None:
        self._stops += 1
        # `Event.set` waits for a lock that the interrupted code may hold.
        threading.Thread(target=self.should_exit.set).start()

    def init_processes(self) -> None:
        self._add()

    def _add(self) -> None:
        self.processes.append(self._started())
        self._config.needed = Needed.DEFAULT

    def _started(self) -> Process:
        worker = Process(self._config, self.sockets)
        worker.start()
        return worker

    def keep_subprocess_alive(self) -> None:
        """Called twice a second."""
        for place, worker in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if self._is_well(worker, place):
                continue
            if not self._served:
                self._failed = worker
                self.should_exit.set()
                return
            if worker.pid not in self._again:
                self._end(worker, place)
            if time.monotonic() >= self._again[worker.pid]:
                del self._again[worker.pid]
                self.processes[place] = self._started()
        if self._served and len(self.processes) < self.processes_num:
            self._add()

    def _is_well(self, worker: Process, place: int) -> bool:
        """Whether a worker runs and answers. One that is still loading its models need not answer."""
        if not worker.process.is_alive():
            return False
        if worker.pid in self._served:
            return worker.ping(ANSWER_SECONDS)
        if worker.is_ready(timeout=1):
            log.info("worker %d serves", worker.pid)
            if not self._served:
                self._ready()
            self._served.add(worker.pid)
            self._pauses.pop(place, None)
        return True

    def _end(self, worker: Process, place: int) -> None:
        """Ends a worker that is not well, and says when another takes its place."""
        how = "does not answer and is killed" if worker.process.is_alive() else _how(worker)
        worker.kill()
        worker.process.join()
        self._forget_metrics(worker)
        pause = 0.0 if worker.pid in self._served else min(max(1.0, 2 * self._pauses.get(place, 0.0)), _LONGEST_PAUSE)
        self._pauses[place] = pause
        self._again[worker.pid] = time.monotonic() + pause
        log.error("worker %d %s; starting another%s", worker.pid, how, f" in {pause:g} s" if pause else "")

    def _forget_metrics(self, worker: Process) -> None:
        """Takes the gauges of a worker that has ended out of the metrics; its counters stay, if it has served."""
        if METRICS_FOLDER not in os.environ:
            return
        mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
        if worker.pid not in self._served:
            for file in Path(os.environ[METRICS_FOLDER]).glob(f"*_{worker.pid}.db"):
                file.unlink()

    def handle_hup(self) -> None:
        """Replaces the workers. If SIGHUP came from the closing of the service's terminal, stops them."""
        if self._terminal and not _is_terminal():
            self.should_exit.set()
            return
        log.info("reloading: the workers are replaced one after the other")
        before = list(self.processes)
        self._config.needed = Needed.ALL
        self.restart_all()
        self._config.needed = Needed.DEFAULT
        gone = [worker for worker in before if worker not in self.processes]
        for worker in gone:
            self._again.pop(worker.pid, None)
            self._forget_metrics(worker)
        if len(gone) == len(before):
            log.info("reloaded")
        elif not self.should_exit.is_set():
            log.error("not reloaded: %d of %d workers stay as they were", len(before) - len(gone), len(before))

    def terminate_all(self) -> None:
        """Ends workers that do not serve yet at once; the others finish their requests. No connection is accepted."""
        self._port.close()
        for worker in self.processes:
            if worker.pid in self._served or worker.is_ready(timeout=1):
                worker.terminate()
            else:
                worker.kill()

    def join_all(self) -> None:
        """Waits until all have ended. Kills them at a second signal, or when their time is over."""
        until = time.monotonic() + self._config.grace
        while running := [worker for worker in self.processes if worker.process.is_alive()]:
            if self._stops > 1 or time.monotonic() > until:
                for worker in running:
                    worker.kill()
            wait([worker.process.sentinel for worker in running], 0.1)


def _how(worker: Process) -> str:
    code = worker.exitcode
    return f"ended (exit code {code})" if code is None or code >= 0 else f"ended ({signal.Signals(-code).name})"


def _is_terminal() -> bool:
    with suppress(OSError, ValueError):
        return sys.stderr.isatty()
    return False
