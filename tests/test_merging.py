"""What many clients at once would lose: their own results, in order, whoever else asks, fails or leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from movemask.merging import Merged


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


class Work:
    """Ten times each item; keeps what it was called with, and by which thread. It cannot do 2 where told so."""

    def __init__(self, broken: bool = False) -> None:
        self.calls: list[list[int]] = []
        self.threads: list[threading.Thread] = []
        self.broken = broken

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        self.threads.append(threading.current_thread())
        if self.broken and 2 in items:
            raise RuntimeError("broken")
        return [item * 10 for item in items]


def all_of(
    executor: ThreadPoolExecutor, work: Callable[[list[int]], Sequence[int]], *asked: list[int]
) -> list[Sequence[int] | BaseException]:
    """What each of these gets who ask in one turn of the loop."""

    async def main() -> list[Sequence[int] | BaseException]:
        merged = Merged(executor, work, few=3)
        calls: list[Coroutine[Any, Any, Sequence[int]]] = [merged.run(items) for items in asked]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    return asyncio.run(main())


def test_everyone_gets_their_own_and_one_turn_is_one_call(executor: ThreadPoolExecutor) -> None:
    work = Work()
    assert all_of(executor, work, [0, 100], [1], [2, 102]) == [[0, 1000], [10], [20, 1020]]
    assert work.calls == [[0, 100, 1, 2, 102]]
    assert work.threads == [threading.current_thread()]


def test_a_large_request_is_done_alone_whole_and_off_the_loop(executor: ThreadPoolExecutor) -> None:
    work = Work()
    assert all_of(executor, work, [1, 2, 3, 4], [5]) == [[10, 20, 30, 40], [50]]
    assert sorted(work.calls) == [[1, 2, 3, 4], [5]]
    assert work.threads[work.calls.index([1, 2, 3, 4])] is not threading.current_thread()


def test_what_takes_long_is_done_off_the_loop(executor: ThreadPoolExecutor) -> None:
    work = Work()

    async def main() -> list[Sequence[int]]:
        merged = Merged(executor, work, cost=lambda item: 20 if item > 9 else 1)
        return list(await asyncio.gather(merged.run([1]), merged.run([2, 10]), merged.run([3])))

    assert asyncio.run(main()) == [[10], [20, 100], [30]]
    threads = dict(zip(map(tuple, work.calls), work.threads, strict=True))
    assert threads[1, 3] is threading.current_thread()
    assert threads[2, 10] is not threading.current_thread()


def test_an_error_of_one_does_not_reach_those_it_was_merged_with(executor: ThreadPoolExecutor) -> None:
    for asked in ([2],), ([0], [1], [2], [3]):
        found = all_of(executor, Work(broken=True), *asked)
        for items, result in zip(asked, found, strict=True):
            if items == [2]:
                assert isinstance(result, RuntimeError)
            else:
                assert result == [10 * item for item in items]


def test_who_left_before_their_turn_is_not_worked_for(executor: ThreadPoolExecutor) -> None:
    work = Work()

    async def main() -> None:
        merged = Merged(executor, work)
        first, gone, last = (asyncio.ensure_future(merged.run([n])) for n in range(3))
        await asyncio.sleep(0)  # all three have asked
        gone.cancel()
        assert [await first, await last] == [[0], [20]]
        assert gone.cancelled()

    asyncio.run(main())
    assert work.calls == [[0, 2]]


def test_a_large_request_is_worked_on_in_parts_and_no_further_once_its_client_has_gone(
    executor: ThreadPoolExecutor,
) -> None:
    """1,000 games of 1,024 moves went on for 27 s after the client had left."""
    begun, go_on = threading.Event(), threading.Event()
    calls: list[list[int]] = []

    def work(items: list[int]) -> list[int]:
        calls.append(items)
        begun.set()
        assert go_on.wait(30)
        return items

    async def main() -> None:
        merged = Merged(executor, work, cost=lambda item: item, at_once=40)
        asked = asyncio.ensure_future(merged.run([20, 15, 30, 100, 1, 2]))
        assert await asyncio.to_thread(begun.wait, 30)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        go_on.set()
        assert await merged.run([20, 15, 30, 100, 1, 2]) == [20, 15, 30, 100, 1, 2]

    asyncio.run(main())
    assert calls == [[20, 15], [20, 15], [30], [100], [1, 2]]
