"""What routes use: `Services`, made in the app's lifespan, and work that ends when its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request

from movemask.api.metrics import Metrics
from movemask.api.telemetry import context_of
from movemask.errors import Overloaded
from movemask.network.model import Model
from movemask.pipeline import Pipeline
from movemask.service import Runtime, running
from movemask.settings import Settings

T = TypeVar("T")

_PARSED_AT_ONCE = 2

#: One thread computes while the other waits for the database; more would only contend with the event loop for the GIL.
_READING_THREADS = 2

#: Seconds before listening for a disconnect. Most requests are done by then, and listening has a cost.
_LISTEN_AFTER = 0.05


class Readers:
    """Threads that read the audit. At most `limit` reads run or wait; more are refused with Overloaded."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._threads = CapacityLimiter(_READING_THREADS)

    async def run(self, read: Callable[[], T]) -> T:
        """The result of `read`, called on one of the threads."""
        under_way = self._threads.borrowed_tokens + self._threads.statistics().tasks_waiting
        if under_way >= self._limit:
            raise Overloaded(f"{under_way} requests for figures of the audit are under way", retry_after=1)
        return await to_thread.run_sync(read, limiter=self._threads)

    async def stream(self, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
        """The parts, each read on demand. The first is read at once, so that a database error is raised here, before
        the response begins; later parts are never refused."""
        first = await self.run(lambda: next(parts, None))

        async def all_parts() -> AsyncIterator[bytes]:
            part = first
            while part is not None:
                yield part
                part = await to_thread.run_sync(next, parts, None, limiter=self._threads)

        return all_parts()


@dataclass(frozen=True)
class Services(Runtime):
    """The process's runtime, the readers of the audit and the metrics; `parsing` bounds the large bodies that are
    parsed at once, each of which may take many times its size in memory."""

    readers: Readers
    metrics: Metrics
    parsing: CapacityLimiter

    @asynccontextmanager
    async def pipeline(self, model: str | None, http: Request) -> AsyncIterator[Pipeline]:
        """The pipeline of a model, on behalf of the client of a request; the model stays loaded meanwhile."""
        async with self.serving.lease(model) as pipeline:
            yield pipeline.for_caller(context_of(http.scope))


@contextmanager
def running_services(
    settings: Settings, metrics: Metrics, prepare: Callable[[Model], Model] | None = None
) -> Iterator[Services]:
    """The services of one app; closes them in order. `prepare` as in `service.running`."""
    with running(settings, metrics, prepare) as runtime:
        readers, parsing = Readers(settings.max_readers), CapacityLimiter(_PARSED_AT_ONCE)
        yield Services(**vars(runtime), readers=readers, metrics=metrics, parsing=parsing)


async def services(request: Request) -> Services:
    """The app's services, as a dependency of routes.

    `async`, because FastAPI runs plain functions on the shared threads, which a probe must not wait for.
    """
    app_services: Services = request.app.state.services
    return app_services


AppServices = Annotated[Services, Depends(services)]


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
