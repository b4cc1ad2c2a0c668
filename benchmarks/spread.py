"""How connections spread over two workers: `python -m benchmarks.spread`. Linux.

Opens 64, 16 and 4 connections at once, again and again, and counts how many each worker has. Each worker listens on a
socket of its own with SO_REUSEPORT, or, with `--shared`, all accept from one.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from benchmarks.hostile.clients import service
from tests import processes

_CONNECTIONS = (64, 16, 4)
_ROUNDS = 20
_UNTIL_ACCEPTED = 0.3  # seconds

_SHARED = "from movemask.server import listening; listening.SPREADS = False; from movemask.cli.main import main; main()"


def _sockets(pid: int) -> int:
    found = 0
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found += os.readlink(file).startswith("socket:")
    return found


def main() -> None:
    """Prints a row for each number of connections."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", action="store_true", help="all workers accept from one socket")
    command = [sys.executable, "-c", _SHARED] if parser.parse_args().shared else None
    with service(workers="2", command=command) as tried:
        time.sleep(5)
        pids = sorted(processes.workers(tried.process.pid))
        for count in _CONNECTIONS:
            most = []
            for _ in range(_ROUNDS):
                before = {pid: _sockets(pid) for pid in pids}
                with ExitStack() as stack:
                    for _ in range(count):
                        stack.enter_context(socket.create_connection(("127.0.0.1", tried.port)))
                    time.sleep(_UNTIL_ACCEPTED)
                    most.append(max(_sockets(pid) - before[pid] for pid in pids))
                time.sleep(_UNTIL_ACCEPTED)
            most.sort()
            print(
                f"of {count} connections the worker with more had {most[0]} to {most[-1]}, median {most[_ROUNDS // 2]}"
            )


if __name__ == "__main__":
    main()
