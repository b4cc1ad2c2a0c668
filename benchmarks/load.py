"""Load on an HTTP service: connections that each send a request, wait for its answer, and send the next.

One process, plain sockets, requests made beforehand: what it costs is taken from the same processors as the service.
"""

from __future__ import annotations

import random
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class BadAnswer(Exception):
    """An answer that is no success, or none that HTTP has."""


@dataclass(frozen=True, slots=True)
class Load:
    """What came of a load: `seconds` each request took `[N]`, over `total` seconds; `answered` counts those of warming
    up too."""

    seconds: Sequence[float]
    total: float
    answered: int

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.seconds) / self.total

    def percentile(self, q: float) -> float:
        """Seconds; `q` in 0..100."""
        return float(np.percentile(self.seconds, q))


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    rng: random.Random
    sent: float = 0.0
    missing: int | None = None  # bytes of the body that are still to come, None before the head is there
    head: bytes = field(default=b"")


def request(path: str, body: bytes) -> bytes:
    """A POST of JSON as bytes."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + _HEAD_END + body


def load(
    port: int,
    requests: Sequence[bytes],
    connections: int,
    seconds: float,
    warm_up: float = 1.0,
    most: int | None = None,
) -> Load:
    """Sends `requests`, in an order of their own for each connection, for so long, or until `most` are answered.

    What is answered in the time of warming up is not counted. Raises BadAnswer for any answer but 200.
    """
    buffer = bytearray(1 << 20)
    taken: list[float] = []
    answered = 0
    with selectors.DefaultSelector() as selector:
        opened = [
            _Connection(socket.create_connection(("127.0.0.1", port)), random.Random(number))
            for number in range(connections)
        ]
        try:
            for one in opened:
                one.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(one.socket, selectors.EVENT_READ, one)
                _send(one, requests)
            start = time.perf_counter() + warm_up
            end = start + seconds
            while (now := time.perf_counter()) < end and (most is None or len(taken) < most):
                for key, _ in selector.select(end - now):
                    one = key.data
                    if _answered(one, buffer):
                        done = time.perf_counter()
                        answered += 1
                        if done >= start:
                            taken.append(done - one.sent)
                        _send(one, requests)
        finally:
            for one in opened:
                one.socket.close()
    return Load(taken, min(time.perf_counter(), end) - start, answered)


def _send(one: _Connection, requests: Sequence[bytes]) -> None:
    one.sent = time.perf_counter()
    one.socket.sendall(one.rng.choice(requests))


def _answered(one: _Connection, buffer: bytearray) -> bool:
    """Reads what has come; whether that was the end of an answer."""
    count = one.socket.recv_into(buffer)
    if not count:
        raise BadAnswer("the service closed a connection")
    if one.missing is None:
        one.head += buffer[:count]
        head, separator, body = one.head.partition(_HEAD_END)
        if not separator:
            return False
        if head.split(b" ", 2)[1] != b"200":
            raise BadAnswer(one.head[:300].decode("latin-1"))
        lower = head.lower()
        place = lower.index(_LENGTH) + len(_LENGTH)
        one.missing = int(lower[place:].split(b"\r\n", 1)[0]) - len(body)
    else:
        one.missing -= count
    if one.missing > 0:
        return False
    one.missing, one.head = None, b""
    return True
