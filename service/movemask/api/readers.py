"""`Readers`: threads of their own for whoever reads the audit, and a limit of how many may wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from movemask.errors import Overloaded

T = TypeVar("T")

#: One reads while the other waits for the database; more would only contend with the event loop for the interpreter.
_THREADS = 2


class Readers:
    """Runs what reads the audit. At most `limit` reads run or wait; more are refused with Overloaded."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="audit-reader")
        self._under_way = 0

    async def run(self, read: Callable[[], T]) -> T:
        """The result of `read`, which runs on a thread of the readers."""
        if self._under_way >= self._limit:
            raise Overloaded(f"{self._under_way} requests for figures of the audit are under way", retry_after=1)
        return await self._step(read)

    async def stream(self, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
        """The parts, each read when it is wanted. The first is read at once, so that an error of the database is raised
        here; those after it are never refused."""
        first = await self.run(lambda: next(parts, None))

        async def all_parts() -> AsyncIterator[bytes]:
            part = first
            while part is not None:
                yield part
                part = await self._step(lambda: next(parts, None))

        return all_parts()

    def close(self) -> None:
        """Waits for what is under way."""
        self._executor.shutdown(cancel_futures=True)

    async def _step(self, read: Callable[[], T]) -> T:
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, read)
        finally:
            self._under_way -= 1
