"""Runs `movemask ARGUMENTS…` without what Windows lacks: `python tests/windows.py ARGUMENTS…`."""

import os
import signal
import socket
import sys

for name in ("resource", "fcntl", "termios"):
    sys.modules[name] = None  # type: ignore[assignment]  # importing it is an ImportError
for place, names in (
    (os, ("O_NONBLOCK", "chown", "fork", "getegid", "geteuid", "sched_getaffinity")),
    (signal, ("SIGHUP",)),
    (socket, ("recv_fds", "send_fds")),
):
    for name in names:
        if hasattr(place, name):
            delattr(place, name)
vars(os)["process_cpu_count"] = os.cpu_count  # that of Python 3.13 and later asks for the affinity

if __name__ == "__main__":
    from movemask.__main__ import main

    main()
