"""Servers that misbehave: real sockets, on which a client's request is read and then treated badly."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: What a server does with a connection whose request it has read. It may go on for as long as `Connection.goes_on`.
Behaviour = Callable[["Connection"], None]

#: A server gives up after so long, so that a client that waits without end fails its test in place of hanging.
_SECONDS = 60

MODELS = b'{"models": []}'


class Connection:
    """A client's connection, its request read."""

    def __init__(self, connected: socket.socket, ended: threading.Event) -> None:
        self.socket, self._ended = connected, ended
        self.request = b""
        self._until = time.monotonic() + _SECONDS

    def goes_on(self, seconds: float = 0) -> bool:
        """Whether the test still runs, after a pause."""
        return not self._ended.wait(seconds) and time.monotonic() < self._until

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read_request(self) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            if not (piece := self.socket.recv(65_536)):
                return data
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        while len(body) < sum(map(int, lengths)) and (piece := self.socket.recv(65_536)):
            body += piece
        return head + b"\r\n\r\n" + body


@contextmanager
def misbehaving(behaviour: Behaviour, tls: tuple[Path, Path] | None = None, *, reads: bool = True) -> Iterator[str]:
    """The address of a server that treats each of its connections in this way; `tls` is a certificate and its key."""
    ended = threading.Event()
    threads: list[threading.Thread] = []
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)

    def treat(connected: socket.socket) -> None:
        with connected, suppress(OSError):
            stream = connected if context is None else context.wrap_socket(connected, server_side=True)
            with stream:
                connection = Connection(stream, ended)
                if reads:
                    connection.request = connection.read_request()
                behaviour(connection)

    def accept() -> None:
        while True:
            connected, _ = listener.accept()
            if ended.is_set():
                connected.close()
                return
            connected.settimeout(_SECONDS)
            threads.append(threading.Thread(target=treat, args=(connected,)))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield f"{'http' if tls is None else 'https'}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            socket.create_connection(listener.getsockname()).close()  # wakes the acceptor
            for thread in (acceptor, *threads):
                thread.join()


def whole(body: bytes, *headers: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """The bytes of a whole response, which announces that the connection closes after it."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += headers
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chunked(*pieces: bytes, kind: str = "application/json", ends: bool = True) -> bytes:
    """The bytes of a chunked response, which may lack its end."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"".join(map(_chunk, pieces)) + (b"0\r\n\r\n" if ends else b"")


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def answer(body: bytes, *headers: str, status: str = "200 OK", kind: str = "application/json") -> Behaviour:
    """Sends a whole response."""
    return lambda connection: connection.send(whole(body, *headers, status=status, kind=kind))


def chunks(*pieces: bytes, kind: str = "application/json", ends: bool = True, pause: float = 0) -> Behaviour:
    """Sends a chunked response, a chunk after each pause."""

    def behave(connection: Connection) -> None:
        connection.send(chunked(kind=kind, ends=False))
        for piece in pieces:
            if not connection.goes_on(pause):
                return
            connection.send(_chunk(piece))
        connection.send(b"0\r\n\r\n" if ends else b"")

    return behave


def endless(start: bytes, again: bytes, pause: float = 0) -> Behaviour:
    """Some bytes, and then the same ones for ever."""

    def behave(connection: Connection) -> None:
        connection.send(start)
        while connection.goes_on(pause):
            connection.send(again)

    return behave


def silent(connection: Connection) -> None:
    """Never says anything."""
    while connection.goes_on(0.1):
        pass


def both(first: Behaviour, second: Behaviour) -> Behaviour:
    """One after the other."""

    def behave(connection: Connection) -> None:
        first(connection)
        second(connection)

    return behave


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
_LARGE = b"Content-Length: 800000000\r\n\r\n"
_BUSY = json.dumps({"type": "urn:movemask:problem:overloaded", "title": "t", "status": 503, "detail": "busy"}).encode()


def busy(retry_after: str) -> Behaviour:
    return answer(_BUSY, f"Retry-After: {retry_after}", status="503 Service Unavailable")


def bomb() -> bytes:
    """A gigabyte of zeros, packed."""
    return gzip.compress(bytes(2**24)) * 64


LATE = "not answered within 0.3 s"

#: By name: what a server does, and what the client's error says.
FAULTS: dict[str, tuple[Behaviour, str]] = {
    "silence": (silent, LATE),
    "100 Continue for ever": (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.01), LATE),
    "a byte now and then": (endless(HEAD + b"Content-Length: 9999\r\n\r\n", b" ", 0.1), LATE),
    "a byte of the head now and then": (endless(b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.1), LATE),
    "a chunk now and then": (endless(_CHUNKED, b"1\r\n \r\n", 0.1), LATE),
    "800 MB": (endless(HEAD + _LARGE, b"0," * 500_000), "an answer of more than 8,388,608 bytes"),
    "a gzip bomb": (answer(bomb(), "Content-Encoding: gzip"), "an answer of more than 8,388,608 bytes"),
    "no gzip": (answer(b"{}", "Content-Encoding: gzip"), "DecodingError: "),
    "a cut chunked body": (chunks(b'{"models": [', ends=False), "RemoteProtocolError: "),
    "a cut body": (endless(HEAD + b"Content-Length: 99\r\n\r\n{", b"", 60), LATE),
    "closed in the middle": (lambda connection: connection.send(HEAD + b"Content-Length: 99\r\n\r\n{"), "Remote"),
    "closed in the head": (lambda connection: connection.send(HEAD), "RemoteProtocolError: "),
    "closed at once": (lambda connection: None, "RemoteProtocolError: Server disconnected without"),
    "no HTTP": (
        lambda connection: connection.send(b"220 mail ready\r\n\r\n"),
        "RemoteProtocolError: illegal status line",
    ),
    "bytes": (lambda connection: connection.send(bytes(range(256)) * 100), "RemoteProtocolError: "),
    "a page": (answer(b"<html>", kind="text/html"), "text/html in place of application/json"),
    "no type": (
        lambda connection: connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
        "no type in place",
    ),
    "nothing": (answer(b"", status="204 No Content"), "the answer is not JSON: EOF"),
    "no JSON": (answer(b'{"models": '), "the answer is not JSON: EOF"),
    "not UTF-8": (answer(b'{"models": "\xff"}'), "the answer is not JSON: "),
    "half a surrogate": (answer(b'{"models": "\\ud800"}'), "the answer is not JSON: "),
    "NaN": (answer(b'{"models": [], "x": NaN}'), "the answer is not JSON: "),
    "other fields": (answer(b'{"networks": []}'), "the answer is not movemask's: models: Field required"),
    "other types": (answer(b'{"models": {"a": 1}}'), "the answer is not movemask's: models: "),
    "null": (answer(b"null"), "the answer is not movemask's: "),
    "a redirect": (
        answer(b"", "Location: https://elsewhere.example/v1/models", status="307 Temporary Redirect"),
        "redirects to https://elsewhere.example/v1/models",
    ),
    "a redirect to itself": (answer(b"", "Location: /v1/models", status="302 Found"), "redirects to /v1/models"),
    "another protocol": (answer(b"", "Upgrade: x", status="101 Switching Protocols"), "RemoteProtocolError: "),
    "a proxy's page": (answer(b"<html>", status="502 Bad Gateway"), "answered 502 without a problem document"),
    "a problem that is none": (answer(b'{"type": 3}', status="422 X"), "answered 422 without a problem document"),
    "Retry-After for ever": (busy("0.5"), "busy"),
    "a date as Retry-After": (busy("Fri, 31 Dec 1999 23:59:59 GMT"), "busy"),
}
