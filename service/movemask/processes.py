"""Child processes that end with their parent, and a supervisor that replaces workers that die or hang."""

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

#: Failed starts in a row, once a worker has served, after which the supervisor gives up.
_ATTEMPTS = 3


def end_with_parent(grace: float = 0) -> None:
    """Ends this process when the one that started it ends, by SIGKILL too. Returns at once; a thread does the waiting.

    multiprocessing gives each child one end of a pipe whose other end only the parent holds, so the system closes it
    with the parent. With `grace`, the process first gets SIGTERM and that many seconds to stop in order.
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
    """A worker's line to its supervisor. Writing never blocks and never fails, whatever became of the supervisor."""

    def __init__(self, line: Connection) -> None:
        self._line = line

    def alive(self) -> None:
        """The worker serves. To be repeated well within the supervisor's `stuck_seconds`."""
        self._write(_ALIVE)

    def failed(self, reason: str) -> None:
        """The worker cannot start; it ends right after this."""
        self._write(reason.encode())

    def _write(self, data: bytes) -> None:
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._line.fileno(), data)


#: What a worker runs: importable by name and picklable, as it runs in a fresh interpreter.
Target = Callable[[Report], None]


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    line: Connection
    heard: float | None = None  # when it last reported that it serves
    reason: str = ""  # why it could not start

    @classmethod
    def started(cls, target: Target) -> _Worker:
        ours, theirs = Pipe(duplex=False)
        for end in (ours, theirs):
            os.set_blocking(end.fileno(), False)
        process = multiprocessing.get_context("spawn").Process(target=target, args=(Report(theirs),))
        process.start()
        theirs.close()
        return cls(process, ours)

    def read(self) -> None:
        """Takes in what it has reported since the last time."""
        with suppress(BlockingIOError):
            while said := os.read(self.line.fileno(), 65_536):
                if _ALIVE in said:
                    self.heard = time.monotonic()
                self.reason += said.replace(_ALIVE, b"").decode(errors="replace")

    def killed(self) -> None:
        self.process.kill()
        self.process.join()
        self.line.close()


def supervise(
    target: Target,
    count: int,
    *,
    stuck_seconds: float,
    stop_seconds: float,
    ended: Callable[[int], None] = lambda pid: None,
) -> None:
    """Keeps `count` processes of `target` running until SIGTERM or SIGINT; returns when all of them have ended.

    A worker that dies, or reports nothing for `stuck_seconds`, is replaced, and `ended` is called with its process id.
    Raises SettingsError, all workers stopped, if one cannot start: at once before any has served, else when several
    starts in a row have failed. A stop takes at most `stop_seconds`; a second signal ends it at once.
    """
    with _stop_signals() as stop:
        workers: list[_Worker] = []
        try:
            for _ in range(count):
                workers.append(_Worker.started(target))
            _watch(workers, target, stop, stuck_seconds, ended)
        finally:
            _stopped(workers, stop, stop_seconds)


def _watch(
    workers: list[_Worker], target: Target, stop: Connection, stuck_seconds: float, ended: Callable[[int], None]
) -> None:
    served, failures = False, 0
    while not _signalled(workers, stop, stuck_seconds):
        for index, worker in enumerate(workers):
            gone = not worker.process.is_alive()  # before reading: what it said last is then there
            worker.read()
            served = served or worker.heard is not None
            if gone:
                how = f"ended ({_exit(worker.process.exitcode)})"
            elif worker.heard is not None and time.monotonic() - worker.heard >= stuck_seconds:
                how = f"has not reported for {stuck_seconds:g} s and is killed"
            else:
                continue
            worker.killed()
            pid = worker.process.pid
            assert pid is not None
            ended(pid)
            failures = failures + 1 if worker.heard is None else 0
            if failures and (not served or failures == _ATTEMPTS):
                raise SettingsError(worker.reason or f"a worker process {how} before it could serve")
            log.error("worker process %d %s; starting another. %s", pid, how, worker.reason)
            workers[index] = _Worker.started(target)


def _signalled(workers: Sequence[_Worker], stop: Connection, stuck_seconds: float) -> bool:
    """Waits until a worker reports, ends or is due to have reported; True once there is a signal to stop."""
    heard = [worker.heard for worker in workers if worker.heard is not None]
    timeout = max(0.0, min(heard) + stuck_seconds - time.monotonic()) if heard else None
    there = wait(
        [stop, *(worker.line for worker in workers), *(worker.process.sentinel for worker in workers)], timeout
    )
    return stop in there


def _stopped(workers: Sequence[_Worker], stop: Connection, stop_seconds: float) -> None:
    """Asks all to stop, waits for them, and kills those that are left."""
    with suppress(BlockingIOError):
        os.read(stop.fileno(), 65_536)
    for worker in workers:
        worker.process.terminate()
    until = time.monotonic() + stop_seconds
    while running := [worker for worker in workers if worker.process.is_alive()]:
        there = wait([stop, *(worker.process.sentinel for worker in running)], max(0.0, until - time.monotonic()))
        if not there or stop in there:
            break
    for worker in workers:
        worker.killed()


@contextmanager
def _stop_signals() -> Iterator[Connection]:
    """A connection that can be read from when SIGTERM or SIGINT comes."""
    ours, theirs = Pipe(duplex=False)
    for end in (ours, theirs):
        os.set_blocking(end.fileno(), False)

    def signalled(*_: object) -> None:
        with suppress(BlockingIOError):
            os.write(theirs.fileno(), b"\0")

    before = {number: signal.signal(number, signalled) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield ours
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ours.close()
        theirs.close()


def _exit(code: int | None) -> str:
    return f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
