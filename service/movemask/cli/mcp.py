"""`movemask mcp`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, TextIO

import click

from movemask.cli.options import models_dir_option
from movemask.errors import require
from movemask.server.settings import Settings

if TYPE_CHECKING:
    import httpx2

_SECONDS = 60.0  # limit for a service's response


@click.command()
@click.option("--url", help="Ask a service, such as http://127.0.0.1:8000, instead of networks in this process.")
@click.option("--key-file", type=click.File(), help="With --url: file whose first line is the service's API key.")
@models_dir_option
def mcp(url: str | None, key_file: TextIO | None, settings: Settings) -> None:
    """Offer language models the tools policy, sweep, game and audit.

    Speaks the Model Context Protocol on standard input and output. A program that hosts a language model starts this
    command; docs/mcp.md shows how to configure two such programs.
    """
    require("mcp", "movemask mcp")
    key = key_file.readline().strip() if key_file else None
    asyncio.run(_served(url, key, settings))


async def _served(url: str | None, key: str | None, settings: Settings) -> None:
    """Serves the tools until standard input ends."""
    import httpx2
    from mcp.server.stdio import stdio_server

    from movemask.client.connections import Address, asynchronous_client, headers_of
    from movemask.mcp import mcp_server

    async with AsyncExitStack() as stack:
        if url is None:
            transport = await stack.enter_async_context(_in_process(settings))
            server = mcp_server(lambda _: httpx2.AsyncClient(base_url="http://127.0.0.1", transport=transport))
        else:
            address, headers = Address.of(url), headers_of(key)
            server = mcp_server(lambda _: asynchronous_client(address, headers), _SECONDS)
        streams = await stack.enter_async_context(stdio_server())
        await server.run(streams[0], streams[1], server.create_initialization_options())


@asynccontextmanager
async def _in_process(settings: Settings) -> AsyncIterator[httpx2.AsyncBaseTransport]:
    """The service without a port, open to this process alone. Its audit is deleted at the end."""
    import httpx2

    from movemask.server.app import create_app

    with tempfile.TemporaryDirectory() as folder:
        own = {"database_url": f"sqlite:///{folder}/audit.db", "api_keys": None, "api_keys_file": None, "mcp": False}
        app = create_app(settings.model_copy(update=own))
        async with app.router.lifespan_context(app):
            yield httpx2.ASGITransport(app=app)
