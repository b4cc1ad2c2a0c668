"""Cancels a request's work when its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

T = TypeVar("T")

#: Seconds before listening for a disconnect. Most requests are done by then, and listening has a cost.
_LISTEN_AFTER = 0.05


class ClientGone(Exception):
    """The client closed the connection before its response was ready."""


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; cancels it and raises ClientGone if the client disconnects first."""
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
    """Cancels the task when the client disconnects. The body has been read, so no other message can arrive."""
    while (await request.receive())["type"] != "http.disconnect":
        continue
    task.cancel()
