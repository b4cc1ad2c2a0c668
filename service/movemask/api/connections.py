"""uvicorn's HTTP connections, with Nagle's algorithm off and a limit on headers."""

from __future__ import annotations

import asyncio
import socket

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Bytes of a request's line and headers, beyond the read that they begin in.
MAX_HEAD = 65_536


class Connection(HttpToolsProtocol):
    """Turns Nagle's algorithm off, and refuses headers that are too large.

    asyncio turns it off for the sockets it makes, but not for one that uvicorn shares among worker processes: there a
    body waited 40 ms for the client to acknowledge the head of its answer. httptools itself has no limit on headers.
    """

    _in_head = False
    _head = 0  # bytes of the head under way

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        opened = transport.get_extra_info("socket")
        if opened is not None and opened.family in (socket.AF_INET, socket.AF_INET6):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        went_on = self._in_head
        super().data_received(data)
        if went_on and self._in_head:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self.send_400_response("The request's headers are too large.")

    def on_message_begin(self) -> None:
        self._in_head, self._head = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
