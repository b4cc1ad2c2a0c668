"""`Rates`: when each client's bucket of positions is full again, in memory that all workers of a service share."""

from __future__ import annotations

import hashlib
import ipaddress
import multiprocessing
import os
from functools import lru_cache

#: Number of hash buckets for clients: any two clients share a bucket, and its rate, with probability 1/65,536.
_CLIENTS = 1 << 16


@lru_cache(maxsize=1024)
def client_address(address: str) -> str:
    """Returns the address by which a client is counted: an IPv4 address, or an IPv6 network of /64,
    which is one client's. `::ffff:192.0.2.1`, from a socket for both families, is `192.0.2.1`.
    """
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address.partition("%")[0])
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))


class Rates:
    """Of each client, the time at which its bucket is full again, by time.monotonic, which all processes share.

    There is no lock, because a killed process would never release it. multiprocessing hands the memory to a worker when
    it starts.

    processes : number of workers
    """

    def __init__(self, processes: int = 1) -> None:
        self.processes = processes
        self._key = os.urandom(16)
        self._full_at = multiprocessing.get_context("spawn").RawArray("d", _CLIENTS)

    def bucket(self, client: str) -> int:
        """Returns the number of a client's bucket."""
        digest = hashlib.blake2b(client.encode(), key=self._key, digest_size=4).digest()
        return int.from_bytes(digest, "little") % _CLIENTS

    def __getitem__(self, bucket: int) -> float:
        return float(self._full_at[bucket])

    def __setitem__(self, bucket: int, full_at: float) -> None:
        self._full_at[bucket] = full_at
