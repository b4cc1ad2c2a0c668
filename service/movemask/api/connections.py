"""uvicorn's HTTP connections with Nagle's algorithm off."""

from __future__ import annotations

import asyncio
import socket

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Connection(HttpToolsProtocol):
    """A connection with TCP_NODELAY.

    asyncio sets it on sockets it creates, but not on one that uvicorn shares among worker processes. There a response
    body waited 40 ms for the client to acknowledge the headers.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
