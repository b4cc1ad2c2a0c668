"""The network's queue: batches, order of results, limits, cancellation, and small beside large submissions."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from math import inf
from typing import Any

import pytest

from movemask.errors import InferenceFailed, InvalidFen, MovemaskError, Overloaded, ShuttingDown
from movemask.server.queue.fair import SHARE
from movemask.server.queue.queue import Batch, Queue, Submission

pytestmark = pytest.mark.anyio

#: Number of items of the smallest large submission.
LARGE = SHARE + 1

OVERLOADED = "{} positions are already waiting for model gated; the queue has room for 16"


class GatedDoubler:
    """A `run_batch` that doubles numbers. Each run waits until `gate` is set.

    A negative item gets an InvalidFen. `runs_started` is released at the start of each run.
    """

    def __init__(self) -> None:
        self.runs_started = threading.Semaphore(0)
        self.gate = threading.Event()
        self.batch_sizes: list[int] = []
        self.waited: list[float] = []

    def __call__(self, batch: Batch, waited: Sequence[float], /) -> list[int | MovemaskError]:
        self.batch_sizes.append(len(batch))
        self.waited += waited
        self.runs_started.release()
        assert self.gate.wait(30)
        return [InvalidFen(f"item {item}") if item < 0 else 2 * item for item in items_of(batch)]


@pytest.fixture
def network() -> Iterator[GatedDoubler]:
    network = GatedDoubler()
    yield network
    network.gate.set()


@pytest.fixture
def queue(network: GatedDoubler, request: pytest.FixtureRequest) -> Iterator[Queue]:
    """A queue with one thread in front of `network`. Indirect parameters change its options."""
    options = {"runs": 1, "max_batch": 8, "max_waiting": 16, **getattr(request, "param", {})}
    queue = Queue("gated", network, **options)
    yield queue
    network.gate.set()
    queue.close()


def submission_of(items: Sequence[int]) -> Submission:
    """A submission of numbers, which the queue passes on without looking at them."""
    queries: Any = items
    return Submission("gated", "", queries, lambda answer, place: answer, [1.0] * len(items))


def items_of(batch: Batch) -> list[Any]:
    """The numbers of a batch."""
    return [item.submission.queries[item.place] for item in batch]


async def submit(queue: Queue, items: Sequence[int]) -> Sequence[Any]:
    """The results of the items."""
    submission = submission_of(items)
    await queue.submit(submission)
    return submission.results


async def wait_for_run(network: GatedDoubler) -> None:
    """Waits until one more run has started."""
    assert await asyncio.to_thread(network.runs_started.acquire, timeout=30)


async def wait_for_waiting(queue: Queue, count: int) -> None:
    """Waits until `count` items are in the queue."""
    while queue.waiting != count:
        await asyncio.sleep(0)


async def wait_for_threads(queue: Queue) -> None:
    """Waits until each thread sleeps or runs a batch. One that is awake takes the next items before the loop does."""
    while len(queue._changed._waiters) + len(queue._run_starts) < len(queue._threads):  # type: ignore[attr-defined]
        await asyncio.sleep(0)


@pytest.mark.parametrize("queue", [{"runs": 2}], indirect=True)
async def test_idle_threads_share_items_evenly(network: GatedDoubler, queue: Queue) -> None:
    results = asyncio.create_task(submit(queue, range(10)))
    await wait_for_run(network)
    await wait_for_run(network)  # both run at the same time
    assert network.batch_sizes == [5, 5]
    network.gate.set()
    assert await results == [2 * item for item in range(10)]


async def test_submission_times(network: GatedDoubler, queue: Queue) -> None:
    first, second = submission_of([1]), submission_of([2])
    first_task = asyncio.create_task(queue.submit(first))
    await wait_for_run(network)
    second_task = asyncio.create_task(queue.submit(second))
    await wait_for_waiting(queue, 1)
    network.gate.set()
    await asyncio.gather(first_task, second_task)
    assert first.submitted <= first.started <= first.ended
    assert second.submitted < second.started  # it waited for the first
    assert first.started < second.started <= second.ended


async def test_waited_seconds_are_those_of_the_own_batch(network: GatedDoubler, queue: Queue) -> None:
    """Each item reports the time until its own batch, not until the first of its submission."""
    task = asyncio.create_task(submit(queue, range(10)))
    await wait_for_run(network)
    network.gate.set()
    await task
    assert network.batch_sizes == [8, 2]
    first_batch, second_batch = set(network.waited[:8]), set(network.waited[8:])
    assert len(first_batch) == len(second_batch) == 1
    assert min(second_batch) > max(first_batch), "the second batch waited for the first"


async def test_failing_item_does_not_affect_others(network: GatedDoubler, queue: Queue) -> None:
    blocker = asyncio.create_task(submit(queue, [0]))
    await wait_for_run(network)
    mixed = asyncio.create_task(submit(queue, [1, -1]))
    valid = asyncio.create_task(submit(queue, [4]))
    await wait_for_waiting(queue, 3)
    network.gate.set()
    result, error = await mixed
    assert result == 2
    assert isinstance(error, InvalidFen)
    assert [await blocker, await valid] == [[0], [8]]


async def test_full_queue_raises_overloaded(network: GatedDoubler, queue: Queue) -> None:
    """`max_waiting` is 16. A queue in which nothing waits accepts more."""
    first = asyncio.create_task(submit(queue, range(20)))
    await wait_for_run(network)  # of a batch of 8
    await wait_for_waiting(queue, 12)
    with pytest.raises(Overloaded, match=OVERLOADED.format(12)) as overloaded:
        await submit(queue, range(LARGE))
    assert overloaded.value.retry_after >= 1
    network.gate.set()
    await first


async def test_cancelled_items_are_not_run(network: GatedDoubler, queue: Queue) -> None:
    partly_run = asyncio.create_task(submit(queue, range(10)))
    await wait_for_run(network)
    not_run = asyncio.create_task(submit(queue, range(5)))
    other = asyncio.create_task(submit(queue, range(3)))
    await wait_for_waiting(queue, 10)
    partly_run.cancel()
    not_run.cancel()
    await asyncio.gather(partly_run, not_run, return_exceptions=True)
    assert queue.waiting == 3
    network.gate.set()
    await other
    assert network.batch_sizes == [8, 3]


def test_thread_survives_closed_event_loop(network: GatedDoubler, queue: Queue) -> None:
    async def submit_and_leave() -> None:
        asyncio.create_task(submit(queue, [1]))  # noqa: RUF006
        await wait_for_run(network)

    asyncio.run(submit_and_leave())
    network.gate.set()
    assert asyncio.run(submit(queue, [2])) == [4]


async def test_close_runs_waiting_items_and_rejects_new(network: GatedDoubler, queue: Queue) -> None:
    tasks = [asyncio.create_task(submit(queue, [item])) for item in range(3)]
    await wait_for_run(network)
    close = asyncio.create_task(asyncio.to_thread(queue.close))
    network.gate.set()
    assert await asyncio.gather(close, *tasks) == [None, [0], [2], [4]]
    with pytest.raises(ShuttingDown):
        await submit(queue, [1])


@pytest.fixture
def always_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small submissions run on the event loop as soon as one has run, however slow the machine is."""
    monkeypatch.setattr("movemask.server.queue.queue._MAX_LOOP_SECONDS", sys.float_info.max)


@pytest.mark.usefixtures("always_quick")
async def test_quick_submissions_run_together_on_event_loop() -> None:
    batches: list[tuple[str, int]] = []
    loop_thread = threading.current_thread().name

    def identity(batch: Batch, _: Sequence[float]) -> list[Any]:
        on_loop = threading.current_thread().name == loop_thread
        batches.append(("loop" if on_loop else "thread", len(batch)))
        return items_of(batch)

    with closing(Queue("quick", identity, runs=1, max_batch=8, max_waiting=100)) as queue:
        for _ in range(3):
            assert await submit(queue, [1]) == [1]
            await wait_for_threads(queue)
        expected = [("thread", 1), ("loop", 1), ("loop", 1)]
        assert batches == expected, "the time of the first run is not known yet"

        batches.clear()
        results = await asyncio.gather(*(submit(queue, [number]) for number in range(6)))
        assert results == [[number] for number in range(6)]
        assert batches == [("loop", 6)]

        batches.clear()
        small, large = await asyncio.gather(submit(queue, [1]), submit(queue, range(50)))
        assert small == [1]
        assert large == list(range(50))
        assert {where for where, _ in batches} == {"thread"}, "a large one would hold up the loop"


@pytest.mark.usefixtures("always_quick")
async def test_cancelled_submission_leaves_others_on_event_loop() -> None:
    queue = Queue("quick", lambda batch, _: items_of(batch), runs=1, max_batch=8, max_waiting=100)
    with closing(queue):
        await submit(queue, [0])
        await wait_for_threads(queue)
        first = asyncio.create_task(submit(queue, [1]))
        second = asyncio.create_task(submit(queue, [2]))
        # Cancels after both have arrived, before the loop runs them.
        asyncio.get_running_loop().call_soon(first.cancel)
        assert await second == [2]
        assert first.cancelled()


@pytest.mark.usefixtures("always_quick")
async def test_error_on_event_loop_is_raised_to_caller() -> None:
    fails = False

    def run(batch: Batch, _: Sequence[float]) -> Sequence[Any]:
        if fails:
            raise InferenceFailed("no")
        return items_of(batch)

    with closing(Queue("quick", run, runs=1, max_batch=8, max_waiting=100)) as queue:
        await submit(queue, [1])
        fails = True
        with pytest.raises(InferenceFailed):
            await submit(queue, [1])
        fails = False
        assert await submit(queue, [1]) == [1]


@pytest.mark.parametrize("queue", [{"runs": 2, "small_runs": 1}], indirect=True)
async def test_large_submission_uses_all_threads_until_small_arrives(network: GatedDoubler, queue: Queue) -> None:
    large = asyncio.create_task(submit(queue, range(20)))
    await wait_for_run(network)
    await wait_for_run(network)  # both threads run
    small = asyncio.create_task(submit(queue, [1]))
    await wait_for_waiting(queue, 5)
    network.gate.set()
    await asyncio.gather(small, large)
    assert network.batch_sizes[:2] == [8, 8]
    assert network.batch_sizes[2] <= 2, "the small one, with at most one item beside it"


@pytest.mark.parametrize("queue", [{"runs": 2, "small_runs": 1}], indirect=True)
async def test_large_submission_is_limited_to_small_runs_beside_small(
    network: GatedDoubler, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("movemask.server.queue.fair._SMALL_EXPECTED", inf)
    small = asyncio.create_task(submit(queue, [1]))
    await wait_for_run(network)
    large = asyncio.create_task(submit(queue, range(20)))
    await asyncio.sleep(0)  # the large submission arrives
    await wait_for_threads(queue)
    assert queue.waiting == 20, "the second thread stays idle"
    network.gate.set()
    await asyncio.gather(small, large)


async def test_small_and_large_submissions_are_limited_separately(network: GatedDoubler, queue: Queue) -> None:
    large = asyncio.create_task(submit(queue, range(40)))
    await wait_for_run(network)
    await wait_for_waiting(queue, 32)
    with pytest.raises(Overloaded, match=OVERLOADED.format(32)):
        await submit(queue, range(LARGE))
    small = [asyncio.create_task(submit(queue, range(SHARE))) for _ in range(2)]
    await wait_for_waiting(queue, 48)
    with pytest.raises(Overloaded, match=OVERLOADED.format(16)):
        await submit(queue, [1])
    network.gate.set()
    await asyncio.gather(large, *small)


async def test_fault_reports_stuck_run(network: GatedDoubler, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    task = asyncio.create_task(submit(queue, [1]))
    await wait_for_run(network)
    assert queue.fault is None
    monkeypatch.setattr("movemask.server.queue.queue._STUCK_SECONDS", 0.0)
    assert queue.fault == "hangs: its network has been running for 0 s"
    network.gate.set()
    await task
    assert queue.fault is None


async def test_close_returns_despite_stuck_run(network: GatedDoubler, queue: Queue) -> None:
    task = asyncio.create_task(submit(queue, [1]))
    await wait_for_run(network)
    await asyncio.to_thread(queue.close)
    task.cancel()
