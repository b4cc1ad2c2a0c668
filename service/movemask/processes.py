"""Child processes that end with their parent, and a supervisor that replaces workers which die or hang."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.context import SpawnContext
from typing import NoReturn, cast

from movemask.errors import SettingsError

log = logging.getLogger(__name__)

#: Whether workers are forked from a process that has imported what they need, and take connections over a Unix socket.
FORKS = "forkserver" in multiprocessing.get_all_start_methods() and hasattr(socket, "send_fds")

_FORKS: SpawnContext = multiprocessing.get_context("forkserver" if FORKS else "spawn")  # type: ignore[assignment]

#: Seconds between looks at a worker that is starting.
_STARTING = 0.02

#: Consecutive failed starts, once any worker has served, after which the supervisor gives up.
_ATTEMPTS = 3


def end_with_parent(grace: float = 0) -> None:
    """Ends this process when its parent ends, even by SIGKILL. Returns at once; a thread waits.

    multiprocessing gives each child one end of a pipe whose other end only the parent holds, so the system closes it
    with the parent. With `grace`, the process first gets SIGTERM and that many seconds to shut down.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        if grace:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(grace)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


class Report:
    """What a worker tells its supervisor, in memory that both share."""

    def __init__(self) -> None:
        self._alive = _FORKS.RawValue("d", 0)
        self._reason = _FORKS.RawArray("c", 2000)

    def alive(self) -> None:
        """Heartbeat: the worker serves. Repeat it well within the supervisor's `stuck_seconds`."""
        self._alive.value = time.monotonic()

    def failed(self, reason: str) -> None:
        """The worker cannot start, and exits right after this."""
        self._reason.value = reason.encode()[:1999]

    @property
    def last_alive(self) -> float | None:
        """Time of the last heartbeat, by the clock that all processes share."""
        return self._alive.value or None

    @property
    def reason(self) -> str:
        """Why it could not start."""
        return str(self._reason.value, errors="replace")


@dataclass(frozen=True)
class Place:
    """What a worker process is given: its number, how it reports, and a Unix socket to its supervisor."""

    number: int
    report: Report
    channel: socket.socket


#: What a worker runs in a fresh process: importable by name and picklable.
Target = Callable[[Place], None]


class Worker:
    """A worker process, as its supervisor sees it; `channel` is the supervisor's end of the socket between them."""

    def __init__(self, target: Target, number: int) -> None:
        self.channel, theirs = socket.socketpair()
        with theirs:
            self.place = Place(number, Report(), theirs)
            self.process = _FORKS.Process(target=target, args=(self.place,))
            self.process.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return cast(int, self.process.pid)

    def kill(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.process.join()


def supervise(
    module: str,
    target: Target,
    count: int,
    *,
    stuck_seconds: float,
    stop_seconds: float,
    begun: Callable[[Worker], None],
    ended: Callable[[Worker], None],
    stopping: Callable[[], None],
    stopped: Callable[[], bool],
) -> None:
    """Keeps `count` processes of `target` running until SIGTERM or SIGINT; returns when all have exited.

    They are forked from a process that has imported `module`, the first alone, and the others when it serves. `begun`
    and `ended` are called with each. A worker that dies, or sends no heartbeat for `stuck_seconds`, is replaced. If one
    cannot start, all are stopped and SettingsError is raised: at once while none has served yet, later after several
    failed starts in a row. Stopping sends SIGTERM, calls `stopping`, and takes at most `stop_seconds`; a second signal
    kills the workers. `stopped` says whether a signal came before they were handled here.
    """
    if FORKS:
        _FORKS.set_forkserver_preload([module])
    with _stop_signals() as stop:
        workers: list[Worker] = []

        def start(number: int) -> Worker:
            worker = Worker(target, number)
            begun(worker)
            return worker

        try:
            if not stopped():
                workers.append(start(0))
                _watch(workers, start, count, stop, stuck_seconds, ended)
        finally:
            for worker in workers:
                worker.process.terminate()
            stopping()
            _stop(workers, stop, stop_seconds)
            for worker in workers:
                ended(worker)


def _watch(
    workers: list[Worker],
    start: Callable[[int], Worker],
    count: int,
    stop: Connection,
    stuck_seconds: float,
    ended: Callable[[Worker], None],
) -> None:
    served, failures = False, 0
    while True:
        oldest = min(worker.place.report.last_alive or time.monotonic() for worker in workers)
        timeout = max(0.0, oldest + stuck_seconds - time.monotonic()) if served else _STARTING
        if stop in wait([stop, *(worker.process.sentinel for worker in workers)], timeout):
            return
        served = served or any(worker.place.report.last_alive for worker in workers)
        while served and len(workers) < count:
            workers.append(start(len(workers)))
        for index, worker in enumerate(workers):
            exited, last_alive = not worker.process.is_alive(), worker.place.report.last_alive
            if exited:
                how = f"ended ({_exit(worker.process.exitcode)})"
            elif last_alive is not None and time.monotonic() - last_alive >= stuck_seconds:
                how = f"has not reported for {stuck_seconds:g} s and is killed"
            else:
                continue
            worker.kill()
            ended(worker)
            failures = failures + 1 if last_alive is None else 0
            reason = worker.place.report.reason
            if failures and (not served or failures == _ATTEMPTS):
                raise SettingsError(reason or f"a worker process {how} before it could serve")
            log.error("worker process %d %s; starting another. %s", worker.pid, how, reason)
            workers[index] = start(index)


def _stop(workers: Sequence[Worker], stop: Connection, stop_seconds: float) -> None:
    """Waits for all to exit, and kills those that remain."""
    while stop.poll():
        stop.recv_bytes()  # only a second signal is seen below
    deadline = time.monotonic() + stop_seconds
    while running := [worker for worker in workers if worker.process.is_alive()]:
        ready = wait([stop, *(worker.process.sentinel for worker in running)], max(0.0, deadline - time.monotonic()))
        if not ready or stop in ready:
            break
    for worker in workers:
        worker.kill()


@contextmanager
def _stop_signals() -> Iterator[Connection]:
    """A connection that becomes readable on SIGTERM or SIGINT."""
    reader, writer = Pipe(duplex=False)
    previous = {
        number: signal.signal(number, lambda *_: writer.send_bytes(b"stop"))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    with reader, writer:
        try:
            yield reader
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _exit(code: int | None) -> str:
    return f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name


def exit_on_signals() -> threading.Event:
    """Makes SIGTERM and Ctrl-C exit with 0, until something else handles them.

    The event is set by the first of them: an exception in a callback of the garbage collector is lost.
    """
    stopping = threading.Event()

    def leave(*_: object) -> NoReturn:
        stopping.set()
        sys.exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    return stopping
