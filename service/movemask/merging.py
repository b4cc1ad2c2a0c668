"""Work of many callers, done as one: what arrives in one turn of the event loop is handed on together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Merged(Generic[T, R]):
    """Runs `work` on the items of all who ask; used from one event loop alone.

    The numbers of a batch cost numpy hardly more than those of one, so what was asked for in one turn of the loop is
    one call, made on the loop itself: for a few positions, handing them to a thread and back costs more than the work.
    Nothing waits for company. Who asks for many, or for what takes long, is served by a thread, alone. A call of
    several callers that raises is made again for each by itself, so that an error reaches only whom it concerns.

    Parameters
    ----------
    work : items → a result for each, in order
    few : items of one caller that are still worked on in the loop
    cost : of an item, by which those are told that take too long for the loop; more than `few` is
    at_once : cost of what a thread is given at once. If the caller is cancelled meanwhile (its client has gone), the
        rest is dropped.
    """

    def __init__(
        self,
        executor: Executor,
        work: Callable[[list[T]], Sequence[R]],
        *,
        few: int = 16,
        cost: Callable[[T], int] = lambda item: 1,
        at_once: int = 4096,
    ) -> None:
        self._executor, self._work, self._few = executor, work, few
        self._cost, self._at_once = cost, at_once
        self._waiting: list[tuple[Sequence[T], asyncio.Future[Sequence[R]]]] = []

    async def run(self, items: Sequence[T]) -> Sequence[R]:
        """The results of these items; raises what `work` raises. Who is cancelled while waiting is left out."""
        loop = asyncio.get_running_loop()
        if len(items) > self._few or any(self._cost(item) > self._few for item in items):
            results: list[R] = []
            for part in self._parts(items):
                results += await loop.run_in_executor(self._executor, self._work, part)
            return results
        future: asyncio.Future[Sequence[R]] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._together)
        self._waiting.append((items, future))
        return await future

    def _parts(self, items: Sequence[T]) -> Iterator[list[T]]:
        """The items in order, as many together as cost no more than is done at once; always one."""
        part: list[T] = []
        total = 0
        for item in items:
            cost = self._cost(item)
            if part and total + cost > self._at_once:
                yield part
                part, total = [], 0
            part.append(item)
            total += cost
        yield part

    def _together(self) -> None:
        """Works for all who have asked since the last time."""
        callers = [one for one in self._waiting if not one[1].done()]
        self._waiting = []
        if len(callers) == 1:
            self._settle(*callers[0])
        elif callers:
            try:
                results = self._work([item for items, _ in callers for item in items])
            except Exception:
                for items, future in callers:
                    self._settle(items, future)
                return
            start = 0
            for items, future in callers:
                future.set_result(results[start : start + len(items)])
                start += len(items)

    def _settle(self, items: Sequence[T], future: asyncio.Future[Sequence[R]]) -> None:
        """Works for one caller."""
        try:
            future.set_result(self._work(list(items)))
        except Exception as error:
            future.set_exception(error)
