"""`Tally`: numbers that the worker processes of a service add up, so that a limit holds for all of them together.

Each process writes its own column of a table in shared memory and reads all; there is no lock, for a process that is
killed would never release it. A sum that is read while another process adds to it is older by that addition, and what
a limit lets through is over it by as much at most. The supervisor clears the column of a process that died.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
import threading
from pathlib import Path
from typing import BinaryIO, cast

#: Rows of the service: bytes in flight; positions that wait for a network, and audit records to be written; when the
#: oldest of those was answered, in seconds since 1970, or 0; batches that networks are running.
HELD, WAITING, UNWRITTEN, SINCE, RUNNING = range(5)
_FIRST_CLIENT = 8

#: Rows of a client: positions asked for since the start; what its bucket held, and when, as the process that looked
#: last found it; positions in flight; bytes in flight.
SPENT, TOKENS, AT, IN_FLIGHT, CLIENT_HELD = range(5)
_OF_A_CLIENT = 5

#: Clients that are told apart, by a keyed hash: two share their limits with a chance of one in so many.
_CLIENTS = 1 << 16

_CELLS = _FIRST_CLIENT + _OF_A_CLIENT * _CLIENTS
_KEY = 16  # bytes before the cells: the key of the hash


class Tally:
    """One process's view of the table.

    Parameters
    ----------
    table : the file of the table, from `new_table`; None for a process that is alone
    processes : how many columns it has
    column : the one that this process writes
    """

    def __init__(self, table: BinaryIO | int | None = None, processes: int = 1, column: int = 0) -> None:
        size = _KEY + 8 * _CELLS * processes
        descriptor = -1 if table is None else table if isinstance(table, int) else table.fileno()
        memory = mmap.mmap(descriptor, size)
        self._key = bytes(memory[:_KEY])
        self.name = self._key.hex() if table is not None else ""  # of the service, the same in all its processes
        self._cells = memoryview(memory)[_KEY:].cast("d")
        self.processes, self._column, self._lock = processes, column, threading.Lock()

    def client(self, name: str) -> int:
        """The first row of a client."""
        digest = hashlib.blake2b(name.encode(), key=self._key, digest_size=4).digest()
        return _FIRST_CLIENT + _OF_A_CLIENT * (int.from_bytes(digest, "little") % _CLIENTS)

    def total(self, row: int) -> float:
        """The sum of a row over all processes."""
        start = row * self.processes
        return sum(self._cells[start : start + self.processes])

    def own(self, row: int) -> float:
        """This process's number."""
        return self._cells[row * self.processes + self._column]

    def earliest(self, row: int) -> float | None:
        """The least number of a row that is not 0; None if all are."""
        start = row * self.processes
        return min(filter(None, self._cells[start : start + self.processes]), default=None)

    def latest(self, client: int) -> tuple[float, float] | None:
        """What a client's bucket held and when, by the process that looked at it last; None if none has."""
        start = (client + AT) * self.processes
        times = self._cells[start : start + self.processes].tolist()
        at = max(times)
        return (self._cells[(client + TOKENS) * self.processes + times.index(at)], at) if at else None

    def add(self, row: int, amount: float) -> None:
        """Adds to this process's number, from any thread."""
        with self._lock:
            self._cells[row * self.processes + self._column] += amount

    def put(self, row: int, value: float) -> None:
        """Sets this process's number."""
        self._cells[row * self.processes + self._column] = value

    def clear(self, column: int) -> None:
        """Takes out what a process that died had in flight. What its clients have spent stays spent."""
        rows = [HELD, WAITING, UNWRITTEN, SINCE, RUNNING]
        for client in range(_FIRST_CLIENT, _CELLS, _OF_A_CLIENT):
            rows += (client + IN_FLIGHT, client + CLIENT_HELD)
        for row in rows:
            if self._cells[row * self.processes + column]:
                self._cells[row * self.processes + column] = 0.0


def new_table(processes: int) -> BinaryIO:
    """A table for so many processes, in memory where there is a folder for that; it takes room as it is used."""
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    table = cast(BinaryIO, tempfile.TemporaryFile(dir=folder and Path(folder)))  # noqa: SIM115
    table.truncate(_KEY + 8 * _CELLS * processes)
    table.write(os.urandom(_KEY))
    table.flush()
    return table
