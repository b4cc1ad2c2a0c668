"""`RequestContext`: the state of one request; and `Disconnection`: the end of its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Scope

from movemask.server.edge.keys import KeyScope
from movemask.server.edge.spans import Wait
from movemask.server.edge.traits import Traits

T = TypeVar("T")

#: The context's key in the scope.
CONTEXT = "movemask"

#: The key of the connection's `Disconnection` in the scope. Missing under other servers than `movemask serve`.
DISCONNECTION = "movemask.disconnection"

#: nginx's status for a request whose client closed the connection; only metrics and logs show it.
CLIENT_CLOSED = 499


@dataclass(slots=True, kw_only=True)
class RequestContext:
    """The state of one request, in its scope.

    traits : what its route declares
    client : whose turn it is in a queue, and whose rate and bytes are counted
    keyed : whether the service has API keys
    token : whether the request has a key, valid or not
    key, scopes : the name and the scopes of its API key
    charged : positions counted against the client's rate so far
    charge : `charge(n)` sets the number of positions counted against the client's rate to n; raises RateLimited
    in_flight, counted : its bytes in flight, and how many of them the service's counter includes
    hold : `hold(n)` adds n to its bytes in flight; raises Overloaded
    head : whether only the head of the response is wanted
    answers : positions answered, without errors
    waits : what it has waited for, for spans; None unless the request is traced
    """

    id: str
    traits: Traits
    client: str = ""
    keyed: bool = False
    token: bool = False
    key: str | None = None
    scopes: frozenset[KeyScope] = frozenset(KeyScope)
    charged: int = 0
    charge: Callable[[int], None] = field(default=lambda positions: None)
    in_flight: int = 0
    hold: Callable[[int], None] = field(default=lambda size: None)
    counted: int = 0
    head: bool = False
    answers: int = 0
    waits: list[Wait] | None = None


def context_of(scope: Scope) -> RequestContext:
    """Returns the context of a request."""
    context: RequestContext = scope[CONTEXT]
    return context


class Disconnection:
    """The end of a connection, which cancels the coroutine that its client waits for.

    status : of the request that it ends: what the guard answered, if the client has not gone
    """

    __slots__ = ("_happened", "_waiting", "status")

    def __init__(self) -> None:
        self.status = CLIENT_CLOSED
        self._happened = False
        self._waiting: asyncio.Task[Any] | None = None

    def happen(self) -> None:
        """Called when the connection is lost."""
        self._happened = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def cancels(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns the result of a coroutine.

        If the client disconnects first, cancels it and raises ClientDisconnect.
        """
        if self._happened:
            coroutine.close()
            raise ClientDisconnect
        self._waiting = task = asyncio.current_task()
        try:
            return await coroutine
        except asyncio.CancelledError:
            if self._happened and task is not None and task.uncancel() == 0:
                raise ClientDisconnect from None
            raise
        finally:
            self._waiting = None


async def while_connected(scope: Scope, coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine.

    If the client disconnects first, cancels it and raises ClientDisconnect.

    Other servers, such as Ray Serve, do not report disconnections; the coroutine then runs to its
    end.
    """
    connection: Disconnection | None = scope.get(DISCONNECTION)
    return await (coroutine if connection is None else connection.cancels(coroutine))
