"""An open-loop load generator: one process, plain epoll, so that it costs less per request than the service does."""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from dataclasses import dataclass, field

from benchmarks.hostile.clients import Times, source

_PROBE_SECONDS = 0.05


@dataclass
class Sent:
    """What became of the requests, of the probes beside them, and how far the generator itself was behind."""

    times: Times = field(default_factory=Times)
    probes: Times = field(default_factory=Times)
    rounds: Times = field(default_factory=Times)  # under 0: seconds of each round of its loop
    unsent: int = 0  # requests that were due, but all connections were waiting for an answer
    seconds: float = 0.0

    @property
    def count(self) -> int:
        return sum(map(len, self.times.seconds.values()))


class _Client:
    """A connection with at most one request under way."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), source_address=source())
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.received = b""
        self.since = 0.0
        self.length = -1  # of the whole answer, once its head is here

    def ask(self, raw: bytes) -> None:
        self.since = time.monotonic()
        self.received, self.length = b"", -1
        self.socket.send(raw)

    def read(self) -> bool | None:
        """Whether the answer is complete; None if the connection has ended."""
        try:
            data = self.socket.recv(65_536)
        except BlockingIOError:
            return False
        except OSError:
            return None
        if not data:
            return None
        self.received = self.received + data if self.received else data
        if self.length < 0:
            end = self.received.find(b"\r\n\r\n")
            if end < 0:
                return False
            length = self.received[:end].lower().partition(b"content-length: ")[2].partition(b"\r")[0]
            self.length = end + 4 + int(length)
        return len(self.received) >= self.length

    @property
    def status(self) -> int:
        return int(self.received[9:12])

    @property
    def closing(self) -> bool:
        return b"connection: close" in self.received.lower()


def generate(
    port: int, raw: bytes, probe: bytes, rate: float, seconds: float, connections: int, cores: frozenset[int]
) -> Sent:
    """Sends `raw` at `rate` a second whatever becomes of it, as far as `connections` can, and `probe` every 50 ms on a
    connection of its own; waits up to 10 s more for answers. Times are from sending to having read the whole answer."""
    os.sched_setaffinity(0, cores)
    sent, poll = Sent(), select.epoll()
    clients: dict[int, _Client] = {}
    free: deque[_Client] = deque()

    def opened() -> _Client:
        client = _Client(port)
        clients[client.socket.fileno()] = client
        poll.register(client.socket, select.EPOLLIN)
        return client

    free.extend(opened() for _ in range(connections))
    prober, probed = opened(), True  # whether the last probe was answered
    start = before = time.monotonic()
    due = waiting = 0
    probe_due = start
    while True:
        now = time.monotonic()
        sent.rounds.add(0, now - before)
        before, elapsed = now, now - start
        if elapsed < seconds:
            due = int(rate * elapsed)
            while free and sent.unsent + waiting + sent.count < due:
                client = free.popleft()
                if client.socket.fileno() < 0:  # the service ended it while it was free
                    continue
                client.ask(raw)
                waiting += 1
            if probed and now >= probe_due:
                prober.ask(probe)
                probed, probe_due = False, max(now, probe_due + _PROBE_SECONDS)
        elif (not waiting and probed) or elapsed > seconds + 10:
            break
        for descriptor, _ in poll.poll(0.001):
            client = clients[descriptor]
            complete = client.read()
            if complete is False:
                continue
            took = time.monotonic() - client.since
            if client is prober:
                sent.probes.add(client.status if complete else 0, took)
                probed = True
            elif complete or client.since:
                sent.times.add(client.status if complete else 0, took)
                waiting -= 1
            if complete is None or client.closing:
                poll.unregister(descriptor)
                del clients[descriptor]
                client.socket.close()
                fresh = opened()
                if client is prober:
                    prober = fresh
                else:
                    free.append(fresh)
            elif client is not prober:
                client.since = 0.0
                free.append(client)
    sent.times.seconds.setdefault(0, []).extend([10.0] * waiting)  # never answered
    sent.unsent = max(0, due - sent.count)
    sent.seconds = seconds
    for client in clients.values():
        client.socket.close()
    return sent
