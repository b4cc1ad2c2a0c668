"""Load on an HTTP service: connections that each send a request, wait for its answer, and send the next.

One process, plain sockets, requests made beforehand: what it costs is taken from the same processors as the service.
"""

from __future__ import annotations

import random
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
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
    fresh: bool = True  # nothing has been answered on it
    request: bytes = b""
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

    What is answered in the time of warming up is not counted. A connection that is closed between two answers, as a
    proxy does that is reloaded, is opened anew, on its request's time. Raises BadAnswer for any answer but 200.
    """
    buffer = bytearray(1 << 20)
    times: list[float] = []
    answered = 0
    with selectors.DefaultSelector() as selector:
        opened = [_Connection(_connected(port), random.Random(number)) for number in range(connections)]
        try:
            for one in opened:
                selector.register(one.socket, selectors.EVENT_READ, one)
                _send(one, one.rng.choice(requests))
            start = time.perf_counter() + warm_up
            end = start + seconds
            while (now := time.perf_counter()) < end and (most is None or len(times) < most):
                for key, _ in selector.select(end - now):
                    one = key.data
                    if _closed(one):
                        selector.unregister(one.socket)
                        one.socket.close()
                        one.socket, one.fresh = _connected(port), True
                        selector.register(one.socket, selectors.EVENT_READ, one)
                        one.socket.sendall(one.request)
                    elif _answered(one, buffer):
                        done = time.perf_counter()
                        answered += 1
                        if done >= start:
                            times.append(done - one.sent)
                        _send(one, one.rng.choice(requests))
        finally:
            for one in opened:
                one.socket.close()
    return Load(times, min(time.perf_counter(), end) - start, answered)


def _connected(port: int) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", port))
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def _send(one: _Connection, data: bytes) -> None:
    one.request, one.sent = data, time.perf_counter()
    with suppress(BrokenPipeError, ConnectionResetError):  # closed meanwhile: reading will tell
        one.socket.sendall(data)


def _closed(one: _Connection) -> bool:
    """Whether a connection that has been answered on was closed before the next answer began."""
    if one.fresh or one.head or one.missing is not None:
        return False
    try:
        return not one.socket.recv(1, socket.MSG_PEEK)
    except ConnectionResetError:
        return True


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
    one.missing, one.head, one.fresh = None, b"", False
    return True
