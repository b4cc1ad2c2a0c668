"""How SIGTERM, SIGHUP and Ctrl-C end a process: at once before it serves, later through a connection or a function."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe

#: A terminal that is closed sends SIGHUP. Windows has none.
_STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


def block() -> None:
    """Blocks the signals in this process and in the processes that it forks, until `exit_at_once`."""
    if hasattr(signal, "pthread_sigmask"):  # not on Windows, where nothing is forked
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)


def exit_at_once() -> None:
    """Makes the signals end this process with exit code 0, until something else handles them.

    For a process that does not serve yet. It raises nothing: the module that is being imported would turn an exception
    into another error, and the garbage collector would lose it.
    """
    on_stop(lambda: os._exit(0))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)


def on_stop(stop: Callable[[], object]) -> None:
    """Makes the signals call a function. An ignored SIGHUP stays ignored: so `nohup` starts its command."""

    def handle(number: int, frame: object) -> None:
        stop()

    for number in _STOPPING:
        if number in (signal.SIGTERM, signal.SIGINT) or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handle)


@contextmanager
def stop_signals() -> Iterator[Connection]:
    """A connection that becomes readable at each of the signals; they do not end the process."""
    reader, writer = Pipe(duplex=False)
    previous = {number: signal.getsignal(number) for number in _STOPPING}
    on_stop(lambda: writer.send_bytes(b"stop"))
    with reader, writer:
        try:
            yield reader
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
