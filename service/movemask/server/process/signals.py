"""`exit_at_once`: how SIGTERM, SIGHUP and Ctrl-C end a process that does not serve yet."""

from __future__ import annotations

import os
import signal


def exit_at_once() -> None:
    """Makes the signals end this process with exit code 0, until something else handles them.

    It raises nothing: the module that is being imported would turn an exception into another error, and the garbage
    collector would lose it. An ignored SIGHUP stays ignored: so `nohup` starts its command.
    """
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and (name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN):
            signal.signal(number, lambda number, frame: os._exit(0))
