"""`exit_on_signals`: how a process that has not begun to serve ends."""

from __future__ import annotations

import signal
import sys
import threading
from typing import NoReturn


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
