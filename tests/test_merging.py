"""What many clients at once would lose: their own results, in order, whoever else asks, fails or leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.merging import Merged


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_everyone_gets_their_own_and_what_waits_is_done_together(executor: ThreadPoolExecutor) -> None:
    gate, calls = threading.Event(), []

    def work(items: list[int]) -> list[int]:
        calls.append(list(items))
        if len(calls) == 1:
            assert gate.wait(30)
        return [item * 10 for item in items]

    async def main() -> list[list[int]]:
        merged = Merged(executor, work, at_once=1, most=5)
        asked = [asyncio.ensure_future(merged.run([n, n + 100])) for n in range(5)]
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*asked)

    assert asyncio.run(main()) == [[10 * n, 10 * n + 1000] for n in range(5)]
    # The first was served at once and alone; then no more than five at a time, nobody's own split.
    assert calls == [[0, 100], [1, 101, 2, 102], [3, 103, 4, 104]]


def test_a_large_request_is_done_alone_and_whole(executor: ThreadPoolExecutor) -> None:
    async def main() -> list[int]:
        merged: Merged[int, int] = Merged(executor, lambda items: items, most=3)
        return await merged.run(list(range(10)))

    assert asyncio.run(main()) == list(range(10))


def test_an_error_reaches_those_it_concerns_and_the_next_are_served(executor: ThreadPoolExecutor) -> None:
    def work(items: list[int]) -> list[int]:
        if -1 in items:
            raise RuntimeError("broken")
        return items

    async def main() -> None:
        merged = Merged(executor, work)
        with pytest.raises(RuntimeError, match="broken"):
            await merged.run([-1])
        assert await merged.run([2]) == [2]

    asyncio.run(main())


def test_an_error_of_one_does_not_reach_those_it_was_merged_with(executor: ThreadPoolExecutor) -> None:
    gate = threading.Event()

    def work(items: list[int]) -> list[int]:
        assert gate.wait(30)
        if 2 in items:
            raise RuntimeError("broken")
        return items

    async def main() -> list[list[int] | BaseException]:
        merged = Merged(executor, work, at_once=1)
        asked = [asyncio.ensure_future(merged.run([n])) for n in range(5)]
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(main())
    assert [one for one in found if not isinstance(one, BaseException)] == [[0], [1], [3], [4]]
    assert isinstance(found[2], RuntimeError)


def test_who_left_while_waiting_is_not_worked_for(executor: ThreadPoolExecutor) -> None:
    gate, calls = threading.Event(), []

    def work(items: list[int]) -> list[int]:
        calls.append(list(items))
        assert gate.wait(30)
        return items

    async def main() -> None:
        merged = Merged(executor, work, at_once=1)
        first, gone, last = (asyncio.ensure_future(merged.run([n])) for n in range(3))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        gate.set()
        assert [await first, await last] == [[0], [2]]
        assert gone.cancelled()

    asyncio.run(main())
    assert calls == [[0], [2]]
