"""How signals end a process: at once before it serves, and by a connection that a supervisor waits for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe

_STOPPING = (signal.SIGTERM, signal.SIGINT)


def block() -> None:
    """Keeps SIGTERM and Ctrl-C from this process, and from those that it forks, until they let them through."""
    if hasattr(signal, "pthread_sigmask"):  # Windows has none, and forks nothing
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)


def exit_at_once() -> None:
    """Makes SIGTERM and Ctrl-C end this process with exit code 0, until something else handles them.

    For a process that does not serve yet. It raises nothing: an exception would come out of whatever is being imported
    at that moment, as another error, or be lost in a callback of the garbage collector.
    """
    on_stop(lambda: os._exit(0))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)


def on_stop(stop: Callable[[], object]) -> None:
    """Makes SIGTERM and Ctrl-C call a function."""

    def handle(number: int, frame: object) -> None:
        stop()

    for number in _STOPPING:
        signal.signal(number, handle)


@contextmanager
def stop_signals() -> Iterator[Connection]:
    """A connection that becomes readable with each SIGTERM or Ctrl-C, of which neither ends the process."""
    reader, writer = Pipe(duplex=False)
    previous = {number: signal.getsignal(number) for number in _STOPPING}
    on_stop(lambda: writer.send_bytes(b"stop"))
    with reader, writer:
        try:
            yield reader
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
