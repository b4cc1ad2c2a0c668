"""`Tally`: numbers that the worker processes of a service share, so that a limit holds for all of them together.

The table lies in shared memory. Each process writes one column and reads all. There is no lock, because a killed
process would never release it. Reads are not atomic: a limit may be exceeded by whatever other processes added during
the read. The supervisor clears the column of a process that died.
"""

from __future__ import annotations

import hashlib
import ipaddress
import mmap
import os
import tempfile
import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import BinaryIO, cast

#: Rows of the service: bytes in flight; positions waiting for a network; audit records to be written, and when the
#: oldest of them was answered, in seconds since 1970, or 0; batches that networks are running; open connections; when
#: the process last reported that it serves, by time.monotonic; and the name of the default model.
HELD, WAITING, RUNNING, CONNECTIONS, ALIVE, DEFAULT = range(6)
_FIRST_CLIENT = 8

#: Rows of a client: when its bucket of positions is full again, by time.monotonic; bytes in flight; open connections.
FULL_AT, CLIENT_HELD, CLIENT_CONNECTIONS = range(3)
_OF_A_CLIENT = 3

#: Number of hash buckets for clients: any two clients share a bucket, and its limits, with probability 1/65,536.
_CLIENTS = 1 << 16

_CELLS = _FIRST_CLIENT + _OF_A_CLIENT * _CLIENTS
_KEY = 16  # bytes before the cells: the key of the hash

#: Number of hashes of names. A cell with a name holds `change * _NAMES + hash`, exact in a float64 up to 2^53, so the
#: largest number of the row is the last change.
_NAMES = 1 << 32


@lru_cache(maxsize=1024)
def client_address(address: str) -> str:
    """The address by which a client is counted: an IPv4 address, or an IPv6 network of /64, which is one client's.
    `::ffff:192.0.2.1`, from a socket for both families, is `192.0.2.1`."""
    if ":" not in address:
        return address
    found = ipaddress.IPv6Address(address.partition("%")[0])
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


class Tally:
    """One process's view of the table.

    Parameters
    ----------
    table : the file of the table, from `new_table`; None for the only process of a service
    processes : number of columns
    column : the column that this process writes
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
        return _FIRST_CLIENT + _OF_A_CLIENT * (self._number(name) % _CLIENTS)

    def total(self, row: int) -> float:
        """The sum of a row over all processes."""
        start = row * self.processes
        return sum(self._cells[start : start + self.processes])

    def own(self, row: int) -> float:
        """This process's number."""
        return self.of(self._column, row)

    def of(self, column: int, row: int) -> float:
        """The number of another process."""
        return self._cells[row * self.processes + column]

    def latest(self, row: int) -> float:
        """The largest number of a row."""
        start = row * self.processes
        return max(self._cells[start : start + self.processes])

    def add(self, row: int, amount: float) -> None:
        """Adds to this process's number, from any thread."""
        with self._lock:
            self._cells[row * self.processes + self._column] += amount

    def put(self, row: int, value: float) -> None:
        """Sets this process's number."""
        self._cells[row * self.processes + self._column] = value

    def put_name(self, row: int, name: str) -> None:
        """Makes `name` the row's name for all processes, unless it is already."""
        change, number = divmod(int(self.latest(row)), _NAMES)
        if not change or number != self._number(name):
            change, number = change + 1, self._number(name)
        self.put(row, change * _NAMES + number)

    def latest_name(self, row: int, names: Iterable[str]) -> str | None:
        """The one of `names` that a process put into the row last; None if that was none of them."""
        change, number = divmod(int(self.latest(row)), _NAMES)
        return next((name for name in names if change and number == self._number(name)), None)

    def _number(self, name: str) -> int:
        return int.from_bytes(hashlib.blake2b(name.encode(), key=self._key, digest_size=4).digest(), "little")

    def clear(self, column: int) -> None:
        """Clears the numbers of a process that died.

        What its clients have spent of their rate stays spent, and the name of the default model stays, for the process
        that takes its place.
        """
        rows = [HELD, WAITING, RUNNING, CONNECTIONS, ALIVE]
        for client in range(_FIRST_CLIENT, _CELLS, _OF_A_CLIENT):
            rows += (client + CLIENT_HELD, client + CLIENT_CONNECTIONS)
        for row in rows:
            if self._cells[row * self.processes + column]:
                self._cells[row * self.processes + column] = 0.0


def new_table(processes: int) -> BinaryIO:
    """The file of a table with a column for each process.

    On Linux it is anonymous memory, which a full /dev/shm does not affect. Elsewhere it is a temporary file, written in
    full at once: raises OSError if there is no room.
    """
    size = _KEY + 8 * _CELLS * processes
    if hasattr(os, "memfd_create"):
        table = cast(BinaryIO, os.fdopen(os.memfd_create("movemask-tally"), "r+b"))
        table.truncate(size)
    else:
        table = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115
        table.write(bytes(size))
        table.seek(0)
    table.write(os.urandom(_KEY))
    table.flush()
    return table
