"""What clients of several workers would lose: 40 ms for each answer, waiting for the network to be quiet."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from uvicorn.server import ServerState

from movemask.api.connections import Connection


async def nothing(scope: object, receive: object, send: object) -> None:
    raise AssertionError("nothing is asked")


def test_answers_are_sent_at_once_on_a_socket_that_workers_share() -> None:
    async def main() -> int:
        config = uvicorn.Config(nothing, lifespan="off")
        config.load()
        made: list[Connection] = []

        def opened() -> Connection:
            made.append(Connection(config=config, server_state=ServerState(), app_state={}))
            return made[-1]

        with socket.socket(socket.AF_INET) as shared:  # as uvicorn makes it, without the protocol's number
            shared.bind(("127.0.0.1", 0))
            server = await asyncio.get_running_loop().create_server(opened, sock=shared)
            _, writer = await asyncio.open_connection("127.0.0.1", shared.getsockname()[1])
            while not made or made[0].transport is None:
                await asyncio.sleep(0.01)
            found: int = made[0].transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            writer.close()
            await writer.wait_closed()
            server.close()
            await server.wait_closed()
        return found

    assert asyncio.run(main())
