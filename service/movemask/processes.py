"""Child processes that end with their parent, and a supervisor that replaces workers which die or hang."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.context import SpawnProcess

from movemask.errors import SettingsError

log = logging.getLogger(__name__)

_ALIVE = b"\0"

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
    """A worker's channel to its supervisor. Writing never blocks and never fails, even without a supervisor."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def alive(self) -> None:
        """Heartbeat: the worker serves. Repeat it well within the supervisor's `stuck_seconds`."""
        self._write(_ALIVE)

    def failed(self, reason: str) -> None:
        """The worker cannot start, and exits right after this."""
        self._write(reason.encode())

    def _write(self, data: bytes) -> None:
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._connection.fileno(), data)


#: What a worker runs in a fresh interpreter: importable by name and picklable.
Target = Callable[[Report], None]


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    reports: Connection
    last_alive: float | None = None  # time of its last heartbeat
    reason: str = ""  # why it could not start

    @classmethod
    def start(cls, target: Target) -> _Worker:
        ours, theirs = _nonblocking_pipe()
        process = multiprocessing.get_context("spawn").Process(target=target, args=(Report(theirs),))
        process.start()
        theirs.close()
        return cls(process, ours)

    def read(self) -> None:
        """Reads what it has reported since the last call."""
        with suppress(BlockingIOError):
            while report := os.read(self.reports.fileno(), 65_536):
                if _ALIVE in report:
                    self.last_alive = time.monotonic()
                self.reason += report.replace(_ALIVE, b"").decode(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.reports.close()


def _nonblocking_pipe() -> tuple[Connection, Connection]:
    """The reading end and the writing end."""
    reader, writer = Pipe(duplex=False)
    for end in (reader, writer):
        os.set_blocking(end.fileno(), False)
    return reader, writer


def supervise(
    target: Target,
    count: int,
    *,
    stuck_seconds: float,
    stop_seconds: float,
    stopping: Callable[[], None] = lambda: None,
    ended: Callable[[int], None] = lambda pid: None,
) -> None:
    """Keeps `count` processes of `target` running until SIGTERM or SIGINT; returns when all have exited.

    A worker that dies, or sends no heartbeat for `stuck_seconds`, is replaced, and `ended` is called with its process
    id. If a worker cannot start, all are stopped and SettingsError is raised: at once while none has served yet, later
    after several failed starts in a row. Stopping calls `stopping`, and takes at most `stop_seconds`; a second signal
    kills the workers.
    """
    with _stop_signals() as stop:
        workers: list[_Worker] = []
        try:
            for _ in range(count):
                workers.append(_Worker.start(target))
            _watch(workers, target, stop, stuck_seconds, ended)
        finally:
            stopping()
            _stop(workers, stop, stop_seconds)


def _watch(
    workers: list[_Worker], target: Target, stop: Connection, stuck_seconds: float, ended: Callable[[int], None]
) -> None:
    served, failures = False, 0
    while not _wait_for_signal(workers, stop, stuck_seconds):
        for index, worker in enumerate(workers):
            exited = not worker.process.is_alive()  # asked before reading, so that its last report is read
            worker.read()
            served = served or worker.last_alive is not None
            if exited:
                how = f"ended ({_exit(worker.process.exitcode)})"
            elif worker.last_alive is not None and time.monotonic() - worker.last_alive >= stuck_seconds:
                how = f"has not reported for {stuck_seconds:g} s and is killed"
            else:
                continue
            worker.kill()
            pid = worker.process.pid
            assert pid is not None
            ended(pid)
            failures = failures + 1 if worker.last_alive is None else 0
            if failures and (not served or failures == _ATTEMPTS):
                raise SettingsError(worker.reason or f"a worker process {how} before it could serve")
            log.error("worker process %d %s; starting another. %s", pid, how, worker.reason)
            workers[index] = _Worker.start(target)


def _wait_for_signal(workers: Sequence[_Worker], stop: Connection, stuck_seconds: float) -> bool:
    """Waits until a worker reports, exits or misses its heartbeat; True if a stop signal came."""
    alive = [worker.last_alive for worker in workers if worker.last_alive is not None]
    timeout = max(0.0, min(alive) + stuck_seconds - time.monotonic()) if alive else None
    return stop in wait([stop, *(w.reports for w in workers), *(w.process.sentinel for w in workers)], timeout)


def _stop(workers: Sequence[_Worker], stop: Connection, stop_seconds: float) -> None:
    """Sends SIGTERM to all, waits for them to exit, and kills those that remain."""
    with suppress(BlockingIOError):
        os.read(stop.fileno(), 65_536)  # so that only a second signal is seen below
    for worker in workers:
        worker.process.terminate()
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
    reader, writer = _nonblocking_pipe()

    def handle(*_: object) -> None:
        with suppress(BlockingIOError):
            os.write(writer.fileno(), b"\0")

    previous = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield reader
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()


def _exit(code: int | None) -> str:
    return f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
