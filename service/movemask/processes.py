"""Child processes that end with their parent, and a supervisor that replaces workers which die or hang."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe, wait
from typing import cast

from movemask.errors import SettingsError

log = logging.getLogger(__name__)

_SPAWN = multiprocessing.get_context("spawn")

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
        self._alive = _SPAWN.RawValue("d", 0)
        self._reason = _SPAWN.RawArray("c", 2000)

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


#: What a worker runs in a fresh interpreter: importable by name and picklable.
Target = Callable[[Report], None]


class _Worker:
    def __init__(self, target: Target) -> None:
        self.report = Report()
        self.process = _SPAWN.Process(target=target, args=(self.report,))
        self.process.start()

    def kill(self) -> int:
        """Its process id."""
        self.process.kill()
        self.process.join()
        return cast(int, self.process.pid)


def supervise(
    target: Target,
    count: int,
    *,
    stuck_seconds: float,
    stop_seconds: float,
    stopping: Callable[[], None],
    ended: Callable[[int], None],
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
                workers.append(_Worker(target))
            _watch(workers, target, stop, stuck_seconds, ended)
        finally:
            stopping()
            _stop(workers, stop, stop_seconds)


def _watch(
    workers: list[_Worker], target: Target, stop: Connection, stuck_seconds: float, ended: Callable[[int], None]
) -> None:
    served, failures = False, 0
    while True:
        oldest = min(worker.report.last_alive or time.monotonic() for worker in workers)
        timeout = max(0.0, oldest + stuck_seconds - time.monotonic())
        if stop in wait([stop, *(worker.process.sentinel for worker in workers)], timeout):
            return
        served = served or any(worker.report.last_alive for worker in workers)
        for index, worker in enumerate(workers):
            exited, last_alive = not worker.process.is_alive(), worker.report.last_alive
            if exited:
                how = f"ended ({_exit(worker.process.exitcode)})"
            elif last_alive is not None and time.monotonic() - last_alive >= stuck_seconds:
                how = f"has not reported for {stuck_seconds:g} s and is killed"
            else:
                continue
            pid = worker.kill()
            ended(pid)
            failures = failures + 1 if last_alive is None else 0
            if failures and (not served or failures == _ATTEMPTS):
                raise SettingsError(worker.report.reason or f"a worker process {how} before it could serve")
            log.error("worker process %d %s; starting another. %s", pid, how, worker.report.reason)
            workers[index] = _Worker(target)


def _stop(workers: Sequence[_Worker], stop: Connection, stop_seconds: float) -> None:
    """Sends SIGTERM to all, waits for them to exit, and kills those that remain."""
    while stop.poll():
        stop.recv_bytes()  # only a second signal is seen below
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
