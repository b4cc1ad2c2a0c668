"""`Doors`: the connections of a process, how many of them there may be, and how long each may take."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from movemask.settings import Settings

log = logging.getLogger(__name__)

_SWEEP_SECONDS = 0.5

#: Bytes a second that a client must read of an answer to count as reading.
_READING = 1024

_TCP_CLOSED = 7  # in the first byte of Linux's tcp_info


@dataclass(frozen=True, slots=True)
class Limits:
    """The most connections, in all and of one address (None for any), and seconds: for a request's head, for its body,
    and without progress in reading an answer."""

    connections: int = 2048
    per_address: int | None = None
    head_seconds: float = 10
    body_seconds: float = 60
    read_seconds: float = 30

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Behind proxies, all connections come from the proxies' addresses, and are not counted by address."""
        return cls(
            settings.max_connections,
            None if settings.proxies else settings.max_connections_per_address,
            settings.head_seconds,
            settings.body_seconds,
            settings.read_seconds,
        )


class Watched(Protocol):
    """A connection as `Doors` sees it."""

    transport: asyncio.Transport
    address: str
    until: float | None  # when the client must have sent what it is sending, by time.monotonic
    half_closed: bool
    unsent: int  # bytes that the client had not read at the last look
    stuck_since: float

    def too_slow(self) -> None:
        """Answers and closes: the client has not sent its request in time."""
        ...


class Doors:
    """Counts connections, and looks at each twice a second. Used by one event loop.

    Parameters
    ----------
    full : whether no request can be taken now, asked before anything is done for one
    refused : called with the number of requests that were refused so, twice a second
    metric : called with the number of connections, twice a second
    """

    def __init__(
        self,
        limits: Limits | None = None,
        full: Callable[[], bool] = lambda: False,
        refused: Callable[[int], None] = lambda count: None,
        metric: Callable[[float], None] = lambda connections: None,
    ) -> None:
        self.limits = limits or Limits()
        self.full, self.refused, self.metric = full, refused, metric
        self._open: set[Watched] = set()
        self._addresses: Counter[str] = Counter()
        self._refusals = 0  # not yet reported

    def enter(self, connection: Watched) -> str | None:
        """Adds a connection; why it may not stay, if it may not."""
        self._open.add(connection)
        self._addresses[connection.address] += 1
        if len(self._open) > self.limits.connections:
            return "the service has as many connections as it takes"
        most = self.limits.per_address
        if most is not None and self._addresses[connection.address] > most:
            return f"{most} connections of one address are open, which is as many as the service takes"
        return None

    def leave(self, connection: Watched) -> None:
        """Removes a connection."""
        if connection in self._open:
            self._open.remove(connection)
            self._addresses[connection.address] -= 1
            if not self._addresses[connection.address]:
                del self._addresses[connection.address]

    def count_refusal(self) -> None:
        """Counts a request that was refused."""
        self._refusals += 1

    async def watch(self) -> None:
        """Closes connections whose time is over, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            self.metric(len(self._open))
            if self._refusals:
                self.refused(self._refusals)
                self._refusals = 0
            for connection in list(self._open):
                try:
                    self._look(connection, now)
                except Exception:  # a bug; the others are looked at
                    log.exception("a connection cannot be looked at")
                    self.leave(connection)

    def close(self) -> None:
        """Cuts off the connections that are left."""
        for connection in list(self._open):
            connection.transport.abort()

    def _look(self, connection: Watched, now: float) -> None:
        if connection.until is not None and now > connection.until:
            connection.until = None
            connection.too_slow()
            return
        if connection.half_closed and gone(connection.transport):
            connection.transport.abort()
            return
        unsent = connection.transport.get_write_buffer_size()
        if not unsent or unsent <= connection.unsent - _READING * _SWEEP_SECONDS or not connection.unsent:
            connection.stuck_since = now
        elif now - connection.stuck_since > self.limits.read_seconds:
            connection.transport.abort()
        connection.unsent = unsent


def gone(transport: asyncio.Transport) -> bool:
    """Whether a client that has closed its side is known to have closed both. Known on Linux alone."""
    found: socket.socket | None = transport.get_extra_info("socket")
    option = getattr(socket, "TCP_INFO", None)
    if found is None or option is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        (state,) = struct.unpack("B", found.getsockopt(socket.IPPROTO_TCP, option, 1))
    except OSError:
        return True
    return bool(state == _TCP_CLOSED)
