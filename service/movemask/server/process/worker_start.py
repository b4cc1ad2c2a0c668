"""`WorkerStart`: what a worker process runs, from its first line to its last."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection

from movemask.errors import MovemaskError
from movemask.parent import end_with_parent
from movemask.server import logs
from movemask.server.edge.shared_rates import Rates
from movemask.server.process.listening import Sockets
from movemask.server.process.signals import exit_at_once
from movemask.server.process.worker_process import Order
from movemask.server.service_state import ServiceState
from movemask.server.settings import Settings

#: Seconds that a worker has after `drain_seconds`: 5 for the ledger's last positions, 2 for a stuck network.
_CLOSING_SECONDS = 9


@dataclass(frozen=True)
class WorkerStart:
    """Runs a worker. It is sent to the process, and called there with the order and the pipe to the supervisor.

    settings, rates, state : of the service
    sockets : those on which the worker listens
    """

    settings: Settings
    rates: Rates
    state: ServiceState
    sockets: Sockets

    @property
    def grace(self) -> float:
        """Seconds that a worker has to stop."""
        return self.settings.drain_seconds + _CLOSING_SECONDS

    def __call__(self, order: Order, supervisor: Connection) -> None:
        exit_at_once()
        # A terminal that is closed sends SIGHUP to all processes; only the supervisor reloads.
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        logs.configure(self.settings.log_level, self.settings.log_format)
        logs.await_each_line(1)
        end_with_parent(self.grace)
        # Imported here, so that the supervisor stays small.
        from movemask.server.process.worker import run_worker

        try:
            run_worker(self.settings, self.rates, self.state, self.sockets, order, supervisor.send)
        except MovemaskError as error:
            supervisor.send(str(error))
            sys.exit(1)
        finally:
            logs.flush()
