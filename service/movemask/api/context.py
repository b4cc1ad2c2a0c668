"""`RequestContext`: what is known of one request while it runs; and `Disconnection`, of its client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Scope

from movemask.api.keys import KeyScope
from movemask.pipeline import Caller

T = TypeVar("T")

#: Paths polled every few seconds: logged at debug unless they fail, and answered however much is in flight.
POLLED = {"/livez", "/readyz", "/metrics"}

#: Where the context is in the scope.
CONTEXT = "movemask"

#: Where the connection's `Disconnection` is in the scope; not there under another server than ours.
DISCONNECTION = "movemask.disconnection"


@dataclass(slots=True, kw_only=True)
class RequestContext(Caller):
    """What is known of one request, in its scope.

    `key` is the name of its API key, and `scopes` what it may do. `charged` is the number of positions counted against
    the client's rate so far; `charge(n)` sets it to n, or raises RateLimited. `held` is the number of its bytes in
    flight; `hold(n)` adds n to it, or raises Overloaded; `counted` of them are in the tally. `head` is whether only the
    head of its answer is asked for. `runs` is None unless the request is traced.
    """

    id: str
    key: str | None = None
    scopes: frozenset[KeyScope] = frozenset(KeyScope)
    charged: int = 0
    charge: Callable[[int], None] = field(default=lambda positions: None)
    held: int = 0
    hold: Callable[[int], None] = field(default=lambda size: None)
    counted: int = 0
    head: bool = False


def context_of(scope: Scope) -> RequestContext:
    """The context of a request."""
    context: RequestContext = scope[CONTEXT]
    return context


class Disconnection:
    """The end of a connection, which cancels what its client waits for."""

    __slots__ = ("_happened", "_waiting")

    def __init__(self) -> None:
        self._happened = False
        self._waiting: asyncio.Task[Any] | None = None

    def happen(self) -> None:
        """Called when the connection is lost."""
        self._happened = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def cancels(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; cancels it and raises ClientDisconnect if the client disconnects first."""
        if self._happened:
            work.close()
            raise ClientDisconnect
        self._waiting = task = asyncio.current_task()
        try:
            return await work
        except asyncio.CancelledError:
            if self._happened and task is not None and task.uncancel() == 0:
                raise ClientDisconnect from None
            raise
        finally:
            self._waiting = None


async def while_connected(scope: Scope, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; raises ClientDisconnect if the client disconnects first. Other servers than ours, such as
    Ray Serve, do not say, and work ends there."""
    connection: Disconnection | None = scope.get(DISCONNECTION)
    return await (work if connection is None else connection.cancels(work))
