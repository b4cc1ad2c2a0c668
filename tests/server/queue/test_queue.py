"""The network's queue: batches, order, limits, cancellation and shutdown."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from movemask.errors import InferenceFailed, InvalidFen, MovemaskError, Overloaded, ShuttingDown
from movemask.server.queue.queue import Batch, Queue, Submission

pytestmark = pytest.mark.anyio


class Gate:
    """A worker that doubles numbers: a batch begins, says so, and waits until it is let through."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.open = threading.Event()
        self.sizes: list[int] = []
        self.waited: list[float] = []

    def __call__(self, batch: Batch, waited: Sequence[float], /) -> list[int | MovemaskError]:
        self.sizes.append(len(batch))
        self.waited += waited
        self.begun.release()
        assert self.open.wait(30)
        return [InvalidFen(f"item {number}") if number < 0 else 2 * number for number in numbers(batch)]


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


@pytest.fixture
def queue(gate: Gate, request: pytest.FixtureRequest) -> Iterator[Queue]:
    """A queue of one thread, unless a test says otherwise."""
    options = {"runs": 1, "max_batch": 8, "max_waiting": 16, **getattr(request, "param", {})}
    made = Queue("gated", gate, **options)
    yield made
    gate.open.set()
    made.close()


def submission_of(items: Sequence[int]) -> Submission:
    """A submission of numbers, which the queue passes on without looking at them."""
    queries: Any = items
    return Submission("gated", "", queries, lambda answer, place: answer, [1.0] * len(items))


def numbers(batch: Batch) -> list[Any]:
    return [item.submission.queries[item.place] for item in batch]


async def ask(queue: Queue, items: Sequence[int]) -> Sequence[Any]:
    submission = submission_of(items)
    await queue.submit(submission)
    return submission.results


async def begun(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.begun.acquire, timeout=30)


async def waiting(queue: Queue, count: int) -> None:
    """Lets the loop run until `count` items wait."""
    while queue.waiting != count:
        await asyncio.sleep(0)


async def at_rest(queue: Queue) -> None:
    """Lets the loop run until every thread sleeps: one that is still awake takes what comes next before the loop."""
    while len(queue._changed._waiters) < len(queue._threads):  # type: ignore[attr-defined]
        await asyncio.sleep(0)


@pytest.mark.parametrize("queue", [{"runs": 2}], indirect=True)
async def test_idle_threads_split_waiting_items(gate: Gate, queue: Queue) -> None:
    asked = asyncio.create_task(ask(queue, range(10)))
    await begun(gate)
    await begun(gate)  # both run, before either is done
    assert gate.sizes == [5, 5]
    gate.open.set()
    assert await asked == [2 * item for item in range(10)]


async def test_submission_times(gate: Gate, queue: Queue) -> None:
    one, two = submission_of([1]), submission_of([2])
    first = asyncio.create_task(queue.submit(one))
    await begun(gate)
    second = asyncio.create_task(queue.submit(two))
    await waiting(queue, 1)
    gate.open.set()
    await asyncio.gather(first, second)
    assert one.submitted <= one.started <= one.ended
    assert two.submitted < two.started  # it waited for the first
    assert one.started < two.started <= two.ended


async def test_waited_seconds_per_item(gate: Gate, queue: Queue) -> None:
    """A batch of 1,024 once reported 13.8 ms for each answer after 14.7 s."""
    asked = asyncio.create_task(ask(queue, range(10)))
    await begun(gate)
    gate.open.set()
    await asked
    assert gate.sizes == [8, 2]
    first, second = set(gate.waited[:8]), set(gate.waited[8:])
    assert len(first) == len(second) == 1
    assert min(second) > max(first), "the second batch waited for the first"


async def test_failing_item_leaves_the_others(gate: Gate, queue: Queue) -> None:
    first = asyncio.create_task(ask(queue, [0]))
    await begun(gate)
    bad = asyncio.create_task(ask(queue, [1, -1]))
    good = asyncio.create_task(ask(queue, [4]))
    await waiting(queue, 3)
    gate.open.set()
    one, error = await bad
    assert one == 2
    assert isinstance(error, InvalidFen)
    assert [await first, await good] == [[0], [8]]


async def test_full_queue_raises_overloaded(gate: Gate, queue: Queue) -> None:
    first = asyncio.create_task(ask(queue, range(20)))  # more than may wait, but nothing waits
    await begun(gate)
    await waiting(queue, 12)
    with pytest.raises(
        Overloaded, match="12 positions are already waiting for model gated; the queue has room for 16"
    ) as caught:
        await ask(queue, range(9))
    assert caught.value.retry_after >= 1
    gate.open.set()
    await first


async def test_cancelled_items_are_not_run(gate: Gate, queue: Queue) -> None:
    begun_and_gone = asyncio.create_task(ask(queue, range(10)))
    await begun(gate)
    gone = asyncio.create_task(ask(queue, range(5)))
    stays = asyncio.create_task(ask(queue, range(3)))
    await waiting(queue, 10)
    for task in (begun_and_gone, gone):
        task.cancel()
    await asyncio.gather(begun_and_gone, gone, return_exceptions=True)
    assert queue.waiting == 3
    gate.open.set()
    await stays
    assert gate.sizes == [8, 3]


def test_closed_loop_of_caller(gate: Gate, queue: Queue) -> None:
    async def leave() -> None:
        asyncio.create_task(ask(queue, [1]))  # noqa: RUF006
        await begun(gate)

    asyncio.run(leave())
    gate.open.set()
    assert asyncio.run(ask(queue, [2])) == [4]


async def test_close_runs_waiting_items(gate: Gate, queue: Queue) -> None:
    tasks = [asyncio.create_task(ask(queue, [item])) for item in range(3)]
    await begun(gate)
    closing = asyncio.create_task(asyncio.to_thread(queue.close))
    gate.open.set()
    assert await asyncio.gather(closing, *tasks) == [None, [0], [2], [4]]
    with pytest.raises(ShuttingDown):
        await ask(queue, [1])


async def test_quick_submissions_run_on_the_event_loop() -> None:
    batches: list[tuple[str, int]] = []
    here = threading.current_thread().name

    def quick(batch: Batch, _: Sequence[float]) -> list[Any]:
        batches.append(("here" if threading.current_thread().name == here else "a thread", len(batch)))
        return numbers(batch)

    with closing(Queue("quick", quick, runs=1, max_batch=8, max_waiting=100)) as queue:
        for _ in range(3):
            assert await ask(queue, [1]) == [1]
            await at_rest(queue)
        assert batches == [("a thread", 1), ("here", 1), ("here", 1)], "at first it is not known how long it takes"
        batches.clear()
        assert await asyncio.gather(*(ask(queue, [number]) for number in range(6))) == [[n] for n in range(6)]
        assert batches == [("here", 6)], "several are answered together"
        batches.clear()
        small, large = await asyncio.gather(ask(queue, [1]), ask(queue, range(50)))
        assert (small, large) == ([1], list(range(50)))
        assert {where for where, _ in batches} == {"a thread"}, "many would hold everyone up"


async def test_cancelled_first_caller_leaves_the_others() -> None:
    with closing(Queue("quick", lambda batch, _: numbers(batch), runs=1, max_batch=8, max_waiting=100)) as queue:
        await ask(queue, [0])
        await at_rest(queue)
        first, second = asyncio.create_task(ask(queue, [1])), asyncio.create_task(ask(queue, [2]))
        asyncio.get_running_loop().call_soon(first.cancel)  # after both have come, before the loop runs them
        assert await second == [2]
        assert first.cancelled()


async def test_failing_batch_raises() -> None:
    fails = False

    def run(batch: Batch, _: Sequence[float]) -> Sequence[Any]:
        if fails:
            raise InferenceFailed("no")
        return numbers(batch)

    with closing(Queue("quick", run, runs=1, max_batch=8, max_waiting=100)) as queue:
        await ask(queue, [1])
        fails = True
        with pytest.raises(InferenceFailed):
            await ask(queue, [1])
        fails = False
        assert await ask(queue, [1]) == [1]


@pytest.mark.parametrize("queue", [{"runs": 2, "small_runs": 1}], indirect=True)
async def test_large_submission_uses_all_threads(gate: Gate, queue: Queue) -> None:
    large = asyncio.create_task(ask(queue, range(20)))
    await begun(gate)
    await begun(gate)  # on both threads
    small = asyncio.create_task(ask(queue, [1]))
    await waiting(queue, 5)
    gate.open.set()
    await asyncio.gather(small, large)
    assert gate.sizes[:2] == [8, 8]
    assert gate.sizes[2] <= 2, "the small one, with at most one beside it"


@pytest.mark.parametrize("queue", [{"runs": 2, "small_runs": 1}], indirect=True)
async def test_small_submissions_limit_threads_of_large(gate: Gate, queue: Queue) -> None:
    small = [asyncio.create_task(ask(queue, [number])) for number in range(2)]
    await begun(gate)
    large = asyncio.create_task(ask(queue, range(20)))
    await waiting(queue, 20)
    assert gate.sizes == [2], "the second thread is free, and leaves the cores to the first"
    gate.open.set()
    await asyncio.gather(*small, large)


async def test_small_and_large_limits_are_separate(gate: Gate, queue: Queue) -> None:
    first = asyncio.create_task(ask(queue, range(40)))  # more than may wait, but nothing waits
    await begun(gate)
    await waiting(queue, 32)
    with pytest.raises(Overloaded, match="32 positions are already waiting for model gated; the queue has room for 16"):
        await ask(queue, range(9))
    small = [asyncio.create_task(ask(queue, range(8))) for _ in range(2)]
    await waiting(queue, 48)
    with pytest.raises(Overloaded, match="16 positions are already waiting for model gated; the queue has room for 16"):
        await ask(queue, [1])
    gate.open.set()
    await asyncio.gather(first, *small)


async def test_stuck_run_is_a_fault(gate: Gate, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    task = asyncio.create_task(ask(queue, [1]))
    await begun(gate)
    assert queue.fault is None
    monkeypatch.setattr("movemask.server.queue.queue._STUCK_SECONDS", 0.0)
    assert queue.fault == "hangs: its network has been running for 0 s"
    gate.open.set()
    await task
    assert queue.fault is None


async def test_close_with_stuck_run(gate: Gate, queue: Queue) -> None:
    task = asyncio.create_task(ask(queue, [1]))
    await begun(gate)
    await asyncio.to_thread(queue.close)
    task.cancel()
