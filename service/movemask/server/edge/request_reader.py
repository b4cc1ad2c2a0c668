"""`RequestReader`: what uvicorn gets of a connection's bytes.

httptools parses the requests, and each accepted request is written anew: without trailers, without upgrades, and
without anything that follows a fault.
"""

from __future__ import annotations

from http import HTTPStatus

import httptools

#: Most bytes of a request's line and headers, or of its trailers, and most headers.
MAX_HEAD = 65_536
MAX_HEADERS = 100

#: Status and reason of a refusal.
Fault = tuple[HTTPStatus, str]

INVALID: Fault = HTTPStatus.BAD_REQUEST, "the request is not HTTP/1.1"
TLS: Fault = (
    HTTPStatus.BAD_REQUEST,
    "the client speaks TLS, and this port plain HTTP; ask for http://, or set MOVEMASK_TLS_CERT",
)
_HEAD: Fault = (
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    f"the request has more than {MAX_HEAD} bytes or {MAX_HEADERS} headers beside its body",
)
_VERSION: Fault = HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "the service speaks HTTP/1.1"
_HOST: Fault = HTTPStatus.BAD_REQUEST, "the request needs one Host header"
_CODING: Fault = HTTPStatus.NOT_IMPLEMENTED, "Transfer-Encoding can only be chunked"

#: The first bytes of a TLS handshake.
_HANDSHAKE = b"\x16\x03"


class _Stop(Exception):
    """Ends the parsing."""


class RequestReader:
    """The requests of one connection, whose other methods the parser calls."""

    def __init__(self) -> None:
        self.begun = self.accepted = 0  # requests: with a first byte, with an accepted head
        self.in_head = self.in_body = False
        self.fault: Fault | None = None
        self.too_many = False
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._without_upgrade = (
            b""  # the head of a request for another protocol, without that header
        )
        self._chunked = False
        self._pending = 0  # bytes since the last complete head or piece of a body
        self._most = 0
        self._output: list[bytes] = []

    def feed(self, data: memoryview | bytes, most: int) -> bytes:
        """Parses bytes; returns the accepted requests in them. Begins at most `most` more requests, and stops at
        `too_many` or a `fault`; call it no more after that."""
        self._most = self.accepted + most
        self._pending += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            if self.fault is None and not self.too_many:
                self.fault = TLS if bytes(data[:2]) == _HANDSHAKE and not self.accepted else INVALID
        if self._pending > MAX_HEAD and self.fault is None:
            self.fault = _HEAD
        output, self._output = b"".join(self._output), []
        return output

    def _parse(self, data: memoryview | bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # The parser would leave the rest to another protocol. A new one reads the request without `Upgrade`.
                data = self._without_upgrade + bytes(data[upgrade.args[0] :])
                self._parser = httptools.HttpRequestParser(self)

    def on_message_begin(self) -> None:
        if self.accepted == self._most:
            self.too_many = True
            raise _Stop
        self.begun += 1
        self.in_head, self._url, self._headers = True, b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:  # a trailer is no header
            return
        self._headers.append((name.lower(), value))
        if len(self._headers) > MAX_HEADERS:
            self.fault = _HEAD
            raise _Stop

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade():
            headers = [(name, value) for name, value in self._headers if name != b"upgrade"]
            if len(headers) == len(self._headers):
                raise httptools.HttpParserError("CONNECT")
            self._without_upgrade = self._head(headers)
            return  # `_parse` begins again with it
        if not self._url.startswith(b"/"):
            # Raises HttpParserError for `http://[`, as uvicorn's protocol would.
            httptools.parse_url(self._url)
        head, version = self._head(self._headers), self._parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self._headers)
        codings = [value.lower() for name, value in self._headers if name == b"transfer-encoding"]
        if len(head) > MAX_HEAD:
            self.fault = _HEAD
        elif version not in ("1.0", "1.1"):
            self.fault = _VERSION
        elif hosts > 1 or (not hosts and version == "1.1"):
            self.fault = _HOST
        elif codings not in ([], [b"chunked"]):  # the parser would not undo another coding
            self.fault = _CODING
        if self.fault is not None:
            raise _Stop
        self._output.append(head)
        self._pending = 0
        self.in_head, self.in_body, self._chunked = False, True, bool(codings)
        self.accepted += 1

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        self._output += [b"%x\r\n" % len(body), body, b"\r\n"] if self._chunked else [body]

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        if self._chunked:
            self._output.append(b"0\r\n\r\n")
        self.in_body, self._pending = False, 0

    def _head(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        version = self._parser.get_http_version().encode()
        first = b"%s %s HTTP/%s\r\n" % (self._parser.get_method(), self._url, version)
        return first + b"".join([b"%s: %s\r\n" % header for header in headers]) + b"\r\n"
