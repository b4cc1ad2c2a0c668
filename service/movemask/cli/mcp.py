"""`movemask mcp`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, TextIO

import click

from movemask.cli.options import models_dir_option
from movemask.errors import require
from movemask.settings import NetworkSettings

if TYPE_CHECKING:
    from movemask.client.http import AsyncClient

#: Limits of an answer: of a service, and of the networks in this process.
_SECONDS, _SECONDS_HERE = 60.0, 600.0


@click.command(short_help="Offer tools to language models.")
@click.option(
    "--url",
    help="Ask a service, such as http://127.0.0.1:8000, instead of networks in this process.",
)
@click.option(
    "--key-file",
    type=click.File(),
    help="With --url: file whose first line is the service's API key.",
)
@models_dir_option
def mcp(url: str | None, key_file: TextIO | None, settings: NetworkSettings) -> None:
    """Offer language models the tools policy, sweep, game and audit.

    Speaks the Model Context Protocol on standard input and output. A program that hosts a language model starts this
    command; docs/mcp.md shows how to configure two such programs.
    """
    require("mcp", "movemask mcp")
    key = key_file.readline().strip() if key_file else None
    asyncio.run(_served(url, key, settings))


async def _served(url: str | None, key: str | None, settings: NetworkSettings) -> None:
    """Serves the tools until standard input ends."""
    from movemask.client.http import AsyncClient
    from movemask.mcp import mcp_server, serve_stdio

    async with AsyncExitStack() as stack:
        if url is None:
            client = await stack.enter_async_context(_in_process(settings))
        else:
            client = await stack.enter_async_context(AsyncClient(url, key=key, timeout=_SECONDS))
        await serve_stdio(mcp_server(lambda _: nullcontext(client)))


@asynccontextmanager
async def _in_process(settings: NetworkSettings) -> AsyncIterator[AsyncClient]:
    """Yields a client of the service without a port, open to this process alone.

    Its ledger is deleted at the end.
    """
    require("serve", "movemask mcp without --url")
    import httpx2

    from movemask.client.http import AsyncClient
    from movemask.server.app import create_app
    from movemask.server.settings import Settings

    with tempfile.TemporaryDirectory() as folder:
        own = {
            "database_url": f"sqlite:///{folder}/ledger.db",
            "api_keys": None,
            "api_keys_file": None,
            "trusted_hosts": "*",
            "mcp": False,
        }
        app = create_app(Settings.read(models_dir=settings.models_dir).model_copy(update=own))
        async with app.router.lifespan_context(app):
            http = httpx2.AsyncClient(
                base_url="http://127.0.0.1", transport=httpx2.ASGITransport(app=app)
            )
            async with http:
                yield AsyncClient(http=http, timeout=_SECONDS_HERE)
