"""Work of many callers, done as one: what waits for a thread while it is busy is handed to it together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Merged(Generic[T, R]):
    """Runs `work` on the items of all who wait, off the event loop; used from one event loop alone.

    A lone caller is served at once, so nothing waits for company; while `at_once` calls of `work` are under way, what
    arrives waits, and becomes one call. The numbers of a batch cost numpy hardly more than those of one. A call of
    several callers that raises is made again for each by itself, so that an error reaches only whom it concerns.

    Parameters
    ----------
    work : items → a result for each, in order
    at_once : calls under way at a time
    most : items of several callers in one call; a caller's own are never split
    """

    def __init__(
        self, executor: Executor, work: Callable[[list[T]], Sequence[R]], *, at_once: int = 2, most: int = 256
    ) -> None:
        self._executor, self._work = executor, work
        self._at_once, self._most = at_once, most
        self._waiting: deque[tuple[Sequence[T], asyncio.Future[list[R]]]] = deque()
        self._alone: deque[tuple[Sequence[T], asyncio.Future[list[R]]]] = deque()
        self._under_way = 0

    async def run(self, items: Sequence[T]) -> list[R]:
        """The results of these items; raises what `work` raises. Who is cancelled while waiting is left out."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[R]] = loop.create_future()
        self._waiting.append((items, future))
        self._start(loop)
        return await future

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._under_way < self._at_once and (taken := self._taken()):
            self._under_way += 1
            job = loop.run_in_executor(self._executor, self._work, [item for items, _ in taken for item in items])
            job.add_done_callback(lambda done, taken=taken: self._done(done, taken, loop))  # type: ignore[misc]

    def _taken(self) -> list[tuple[Sequence[T], asyncio.Future[list[R]]]]:
        while self._alone:
            one = self._alone.popleft()
            if not one[1].done():
                return [one]
        taken: list[tuple[Sequence[T], asyncio.Future[list[R]]]] = []
        count = 0
        while self._waiting and (not taken or count + len(self._waiting[0][0]) <= self._most):
            one = self._waiting.popleft()
            if not one[1].done():
                taken.append(one)
                count += len(one[0])
        return taken

    def _done(
        self,
        job: asyncio.Future[Sequence[R]],
        taken: Sequence[tuple[Sequence[T], asyncio.Future[list[R]]]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._under_way -= 1
        error = asyncio.CancelledError() if job.cancelled() else job.exception()
        if isinstance(error, Exception) and len(taken) > 1:
            self._alone.extend(taken)
            taken = ()
        start = 0
        for items, future in taken:
            end = start + len(items)
            if not future.done():
                if error is None:
                    future.set_result(list(job.result()[start:end]))
                else:
                    future.set_exception(error)
            start = end
        self._start(loop)
