"""`Workers`: keeps the worker processes of a service running."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from typing import BinaryIO

from movemask.errors import SettingsError
from movemask.server.listening import Port
from movemask.server.tally import ALIVE, Tally

log = logging.getLogger(__name__)

#: Whether workers are forked, from a process that has imported their modules.
FORKS = "forkserver" in multiprocessing.get_all_start_methods() and hasattr(socket, "send_fds")

_FORKS: SpawnContext = multiprocessing.get_context("forkserver" if FORKS else "spawn")  # type: ignore[assignment]

#: Seconds between looks at the workers until the first serves.
_STARTING = 0.02

#: Failed starts in a row after which the supervisor gives up, once any worker has served.
_ATTEMPTS = 3

#: Seconds within which a signal that has ended a worker reaches the supervisor, if the whole process group gets it.
_SIGNALLED_TOO = 0.2


@dataclass(frozen=True)
class Place:
    """The argument of a worker process: its number, and a Unix socket to its supervisor.

    The supervisor's message holds descriptors: the tally's table, then the listening sockets. The worker sends back the
    reason if it cannot start.
    """

    number: int
    channel: socket.socket


#: The main function of a worker process; importable by name.
Target = Callable[[Place], None]


class Worker:
    """A worker process."""

    def __init__(self, target: Target, number: int, descriptors: Sequence[int]) -> None:
        self.number = number
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        socket.send_fds(self._channel, [b"\0"], descriptors)
        with theirs:
            self.process = _FORKS.Process(target=target, args=(Place(number, theirs),))
            self.process.start()

    def end(self) -> str:
        """Ends the process at once; returns why it could not start, or an empty string."""
        self.process.kill()
        self.process.join()
        with self._channel, suppress(OSError):
            return self._channel.recv(65_536).decode()
        return ""


class Workers:
    """The worker processes of a service.

    Parameters
    ----------
    modules : imported once, by the process from which workers are forked
    target : main function of a worker
    count : number of workers
    table : of the tally, with a column for each worker
    port : where the workers listen; closed at the end
    prepare : called with a worker's number before it starts
    ready : called once, when the first worker serves
    stuck_seconds : a worker that has not reported for this long is replaced
    stop_seconds : time that workers have to stop
    """

    def __init__(
        self,
        modules: list[str],
        target: Target,
        count: int,
        table: BinaryIO,
        port: Port,
        *,
        prepare: Callable[[int], None],
        ready: Callable[[], None],
        stuck_seconds: float,
        stop_seconds: float,
    ) -> None:
        self._target, self._count, self._table, self._port, self._prepare = target, count, table, port, prepare
        self._ready, self._tally = ready, Tally(table, count)
        self._stuck_seconds, self._stop_seconds = stuck_seconds, stop_seconds
        self._workers: list[Worker] = []
        if FORKS:
            _FORKS.set_forkserver_preload(modules)

    def supervise(self, stop: Connection) -> None:
        """Keeps `count` workers running until `stop` is readable; returns when all have exited.

        The first worker starts alone, the others when it serves. A worker that dies or is stuck is replaced. Raises
        SettingsError after stopping all: if a worker cannot start before any has served, or later after three failures.
        At the end workers get SIGTERM and `stop_seconds`; another message from `stop` kills them.
        """
        try:
            if not stop.poll():
                self._start(0)
                self._watch(stop)
        except (EOFError, OSError):  # the process from which workers are forked has ended
            if not stop.poll(_SIGNALLED_TOO):
                raise
        finally:
            for worker in self._workers:
                worker.process.terminate()
            self._port.close()
            self._stop(stop)

    def _start(self, number: int) -> Worker:
        self._prepare(number)
        alone = not any(self._last_alive(worker) for worker in self._workers if worker.number != number)
        with ExitStack() as stack:
            sockets = [stack.enter_context(listener) for listener in self._port.sockets(alone=alone)]
            descriptors = [self._table.fileno(), *(listener.fileno() for listener in sockets)]
            worker = Worker(self._target, number, descriptors)
        self._workers[number:] = [worker, *self._workers[number + 1 :]]
        return worker

    def _last_alive(self, worker: Worker) -> float | None:
        """When a worker last reported, by time.monotonic, which all processes share; None before it serves."""
        return self._tally.of(worker.number, ALIVE) or None

    def _watch(self, stop: Connection) -> None:
        served, failures = False, 0
        while True:
            oldest = min(self._last_alive(worker) or time.monotonic() for worker in self._workers)
            timeout = max(0.0, oldest + self._stuck_seconds - time.monotonic()) if served else _STARTING
            if stop in wait([stop, *(worker.process.sentinel for worker in self._workers)], timeout):
                return
            if not served and any(map(self._last_alive, self._workers)):
                served = True
                self._ready()
            while served and len(self._workers) < self._count:
                self._start(len(self._workers))
            for worker in list(self._workers):
                last_alive = self._last_alive(worker)
                if not worker.process.is_alive():
                    if stop.poll(_SIGNALLED_TOO):
                        return
                    how = f"ended ({_exit(worker.process.exitcode)})"
                elif last_alive is not None and time.monotonic() - last_alive >= self._stuck_seconds:
                    how = f"has not reported for {self._stuck_seconds:g} s and is killed"
                else:
                    continue
                reason = worker.end()
                self._tally.clear(worker.number)
                failures = failures + 1 if last_alive is None else 0
                if failures and (not served or failures == _ATTEMPTS):
                    raise SettingsError(reason or f"a worker process {how} before it could serve")
                log.error("worker process %d %s; starting another%s", worker.process.pid, how, reason and f": {reason}")
                self._start(worker.number)

    def _stop(self, stop: Connection) -> None:
        """Waits for all to exit; then kills the rest."""
        while stop.poll():
            stop.recv_bytes()  # so that only a second signal is seen below
        deadline = time.monotonic() + self._stop_seconds
        while running := [worker for worker in self._workers if worker.process.is_alive()]:
            left = max(0.0, deadline - time.monotonic())
            ready = wait([stop, *(worker.process.sentinel for worker in running)], left)
            if not ready or stop in ready:
                break
        for worker in self._workers:
            worker.end()


def _exit(code: int | None) -> str:
    return f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
