"""Work that ends when its client goes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

T = TypeVar("T")

#: Seconds of work before its client is listened for: most work is done by then, and listening has its price.
_LISTEN_AFTER = 0.05


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled if the client closes the connection first; then ClientGone is raised."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    listening: asyncio.Task[None] | None = None

    def listen() -> None:
        nonlocal listening
        listening = loop.create_task(_cancelled_when_gone(request, task))

    timer = loop.call_later(_LISTEN_AFTER, listen)
    try:
        return await work
    except asyncio.CancelledError:
        if listening is not None and listening.done() and not listening.cancelled() and task.uncancel() == 0:
            raise ClientGone from None
        raise
    finally:
        timer.cancel()
        if listening is not None:
            listening.cancel()


async def _cancelled_when_gone(request: Request, task: asyncio.Task[Any]) -> None:
    """Cancels the task once the client has gone; the body has been read, so nothing else can arrive."""
    while (await request.receive())["type"] != "http.disconnect":
        continue
    task.cancel()
