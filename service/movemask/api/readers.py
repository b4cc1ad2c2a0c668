"""`Readers`: a bounded pool of threads for reading the audit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from movemask.errors import Overloaded

T = TypeVar("T")

#: One thread computes while the other waits for the database; more would only contend with the event loop for the GIL.
_THREADS = 2


class Readers:
    """Threads that read the audit. At most `limit` reads run or wait; more are refused with Overloaded."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="audit-reader")
        self._under_way = 0

    async def run(self, read: Callable[[], T]) -> T:
        """The result of `read`, called on one of the threads."""
        if self._under_way >= self._limit:
            raise Overloaded(f"{self._under_way} requests for figures of the audit are under way", retry_after=1)
        return await self._step(read)

    async def stream(self, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
        """The parts, each read on demand. The first is read at once, so that a database error is raised here, before
        the response begins; later parts are never refused."""
        first = await self.run(lambda: next(parts, None))

        async def all_parts() -> AsyncIterator[bytes]:
            part = first
            while part is not None:
                yield part
                part = await self._step(lambda: next(parts, None))

        return all_parts()

    def close(self) -> None:
        """Waits for running reads."""
        self._executor.shutdown(cancel_futures=True)

    async def _step(self, read: Callable[[], T]) -> T:
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, read)
        finally:
            self._under_way -= 1
