"""uvicorn's HTTP connections, with answers sent at once."""

from __future__ import annotations

import asyncio
import socket

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Connection(HttpToolsProtocol):
    """Answers are not held back for more to send (Nagle's algorithm).

    asyncio sees to that for the sockets it makes, but not for one that uvicorn shares among worker processes: there a
    body waited 40 ms for the client to acknowledge the head of its answer.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        opened = transport.get_extra_info("socket")
        if opened is not None and opened.family in (socket.AF_INET, socket.AF_INET6):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
