"""What a user would lose: answers in order, batches, a bounded wait, no work for a client that has gone, and its turn
beside clients with thousands."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from movemask.errors import InvalidFen, MovemaskError, Overloaded, ShuttingDown
from movemask.server.queue import Queue
from movemask.server.tally import RUNNING, Tally, new_table
from tests.processes import until

pytestmark = pytest.mark.anyio


class Gate:
    """A worker that doubles numbers: a batch begins, says so, and waits until it is let through."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.open = threading.Event()
        self.sizes: list[int] = []
        self.waited: list[float] = []
        self.followed_up: list[list[int]] = []
        self.errors_after: list[Exception] = []
        self.seconds = 0.0  # that a batch takes once it is let through

    def __call__(self, items: Sequence[int], waited: Sequence[float], /) -> tuple[list[int | MovemaskError], int]:
        self.sizes.append(len(items))
        self.waited += waited
        self.begun.release()
        assert self.open.wait(30)
        time.sleep(self.seconds)
        answers: list[int | MovemaskError] = [InvalidFen(f"item {item}") if item < 0 else 2 * item for item in items]
        return answers, len(items)

    def follow_up(self, sizes: Sequence[int]) -> None:
        """What is done once the answers are out."""
        if self.errors_after:
            raise self.errors_after.pop()
        self.followed_up.append(list(sizes))

    @property
    def finished(self) -> int:
        """Items that were followed up."""
        return sum(map(sum, self.followed_up))


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


@pytest.fixture
def queue(gate: Gate, request: pytest.FixtureRequest) -> Iterator[Queue]:
    """A queue of one thread, unless a test says otherwise."""
    options = {"threads": 1, "max_batch": 8, "max_waiting": 16, **getattr(request, "param", {})}
    made = Queue("gated", gate, gate.follow_up, **options)
    yield made
    gate.open.set()
    made.close()


async def ask(queue: Queue, items: Sequence[int]) -> Sequence[Any]:
    return (await queue.submit(items)).results


async def begun(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.begun.acquire, timeout=30)


async def waiting(queue: Queue, count: int) -> None:
    """Lets the loop run until `count` items wait."""
    while queue.waiting != count:
        await asyncio.sleep(0)


async def test_processes_with_large_submissions_share_the_cores(gate: Gate) -> None:
    with new_table(2) as table:
        made = [
            Queue("shared", gate, threads=2, max_batch=8, max_waiting=99, tally=Tally(table, 2, column))
            for column in range(2)
        ]
        asked = [asyncio.create_task(ask(made[0], range(20)))]
        await begun(gate)
        await begun(gate)  # both of its threads: the other process is idle
        asked.append(asyncio.create_task(ask(made[1], range(20))))
        await begun(gate)
        assert not await asyncio.to_thread(gate.begun.acquire, timeout=0.1)  # a third on two cores, no fourth
        gate.open.set()
        assert await asyncio.gather(*asked) == [[2 * item for item in range(20)]] * 2
        for queue in made:
            queue.close()
        assert Tally(table, 2, 0).total(RUNNING) == 0


async def test_what_waits_in_another_process_does_not_turn_small_submissions_away(gate: Gate) -> None:
    with new_table(2) as table:
        full, other = (
            Queue("shared", gate, threads=1, max_batch=8, max_waiting=32, tally=Tally(table, 2, column))
            for column in range(2)
        )
        asked = [asyncio.create_task(ask(full, range(60)))]  # more than the room of both, but nothing waits
        await begun(gate)
        await waiting(full, 52)
        asked.append(asyncio.create_task(ask(other, [1])))
        await begun(gate)
        for count in (1, 2):  # a process's part of the eighth
            asked.append(asyncio.create_task(ask(other, [1])))
            await waiting(other, count)
        with pytest.raises(Overloaded, match="the queue has room for 36"):
            await ask(other, [1])
        gate.open.set()
        await asyncio.gather(*asked)
        full.close()
        other.close()


@pytest.mark.parametrize("queue", [{"threads": 2}], indirect=True)
async def test_idle_threads_split_what_waits_evenly(gate: Gate, queue: Queue) -> None:
    asked = asyncio.create_task(ask(queue, range(10)))
    await begun(gate)
    await begun(gate)  # both run, before either is done
    assert gate.sizes == [5, 5]
    gate.open.set()
    assert await asked == [2 * item for item in range(10)]


async def test_what_waits_goes_before_the_follow_up_of_what_is_answered(gate: Gate, queue: Queue) -> None:
    first = asyncio.create_task(ask(queue, [1]))
    await begun(gate)
    second = asyncio.create_task(ask(queue, range(7)))
    await waiting(queue, 7)
    gate.open.set()
    await asyncio.gather(first, second)
    queue.close()
    assert gate.followed_up == [[1, 7]]


async def test_a_delivery_says_when_it_waited_and_when_it_was_worked_on(gate: Gate, queue: Queue) -> None:
    first = asyncio.create_task(queue.submit([1]))
    await begun(gate)
    second = asyncio.create_task(queue.submit([2]))
    await waiting(queue, 1)
    gate.open.set()
    one, two = await asyncio.gather(first, second)
    assert one.submitted <= one.started <= one.ended
    assert two.submitted < two.started  # it waited for the first
    assert one.started < two.started <= two.ended


async def test_an_item_that_fails_costs_itself_alone(gate: Gate, queue: Queue) -> None:
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


async def test_a_full_queue_refuses_with_a_time_to_come_back_and_an_idle_one_takes_any_batch(
    gate: Gate, queue: Queue
) -> None:
    first = asyncio.create_task(ask(queue, range(20)))  # more than may wait, but nothing waits
    await begun(gate)
    await waiting(queue, 12)
    second = asyncio.create_task(ask(queue, range(4)))
    await waiting(queue, 16)
    with pytest.raises(
        Overloaded, match="16 positions are already waiting for model gated; the queue has room for 18"
    ) as caught:
        await ask(queue, range(3))
    assert caught.value.retry_after >= 1
    gate.open.set()
    await asyncio.gather(first, second)


async def test_what_waits_for_a_client_that_has_gone_is_not_run(gate: Gate, queue: Queue) -> None:
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


async def test_what_fails_after_the_answers_costs_neither_them_nor_the_thread(
    gate: Gate, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    gate.open.set()
    gate.errors_after = [ZeroDivisionError()]
    for _ in range(2):  # full batches, which are followed up at once
        assert await ask(queue, range(8)) == [2 * item for item in range(8)]
    queue.close()
    assert gate.followed_up == [[8]]
    assert "work after the answers of model gated failed" in caplog.text


def test_a_caller_whose_loop_is_closed_does_not_stop_the_thread(gate: Gate, queue: Queue) -> None:
    async def leave() -> None:
        asyncio.create_task(ask(queue, [1]))  # noqa: RUF006
        await begun(gate)

    asyncio.run(leave())
    gate.open.set()
    assert asyncio.run(ask(queue, [2])) == [4]


async def test_closing_finishes_what_waits_and_takes_no_more(gate: Gate, queue: Queue) -> None:
    tasks = [asyncio.create_task(ask(queue, [item])) for item in range(3)]
    await begun(gate)
    closing = asyncio.create_task(asyncio.to_thread(queue.close))
    gate.open.set()
    await asyncio.gather(closing, *tasks)
    assert queue.fault is not None
    with pytest.raises(ShuttingDown):
        await ask(queue, [1])
    assert gate.finished == 3


async def test_a_slow_network_takes_smaller_slices_of_a_large_submission_while_small_ones_come(gate: Gate) -> None:
    queue = Queue("slow", gate, gate.follow_up, threads=1, max_batch=32, max_waiting=99)
    gate.open.set()
    gate.seconds = 0.03  # a slice of eight would be eight times as long with a network that takes this for a position
    await ask(queue, [1])
    await asyncio.gather(ask(queue, range(15)), ask(queue, [1]))
    assert max(gate.sizes) <= 2
    queue.close()


async def test_what_comes_alone_to_a_quick_network_is_answered_where_it_came() -> None:
    answered_on: list[str] = []
    followed: list[str] = []
    here = threading.current_thread().name

    def quick(items: Sequence[Any], _: Sequence[float]) -> tuple[list[Any], list[Any]]:
        answered_on.append(threading.current_thread().name)
        return list(items), list(items)

    def follow(done: Sequence[Any]) -> None:
        followed.extend([threading.current_thread().name] * len(done))

    with closing(Queue("quick", quick, follow, threads=2, max_batch=8, max_waiting=100)) as queue:
        for _ in range(3):
            await ask(queue, [1])
            await asyncio.to_thread(until, lambda: len(followed) == len(answered_on), "it is followed up")
        assert answered_on[0].startswith("network-"), "how long it takes is not known yet"
        assert answered_on[1:] == [here, here]
        await asyncio.gather(*(ask(queue, [number]) for number in range(6)))
        assert answered_on[3].startswith("network-"), "several are answered together"
        await ask(queue, range(50))
        assert answered_on[-1].startswith("network-"), "many would hold everyone up"
        assert here not in followed


async def test_lone_submissions_without_a_pause_are_followed_up() -> None:
    followed = 0

    def follow(done: Sequence[Any]) -> None:
        nonlocal followed
        followed += len(done)

    with closing(
        Queue("quick", lambda items, *_: (items, items), follow, threads=2, max_batch=8, max_waiting=9)
    ) as queue:
        asked, until_time = 0, time.monotonic() + 1
        while time.monotonic() < until_time:
            await ask(queue, [1])
            asked += 1
        assert followed > asked / 2, "a client that asks without a pause keeps the audit waiting"


async def test_a_network_that_never_returns_does_not_keep_the_queue_from_closing(gate: Gate, queue: Queue) -> None:
    task = asyncio.create_task(ask(queue, [1]))
    await begun(gate)
    await asyncio.to_thread(queue.close)
    task.cancel()


@pytest.mark.parametrize("queue", [{"max_waiting": 10_000, "max_seconds": 10}], indirect=True)
async def test_what_would_be_answered_too_late_is_refused_at_once(gate: Gate, queue: Queue) -> None:
    first = asyncio.create_task(ask(queue, [1]))
    await begun(gate)
    await asyncio.sleep(0.02)  # a position takes that long
    gate.open.set()
    await first
    gate.open.clear()
    running = asyncio.create_task(ask(queue, [1]))
    await begun(gate)
    held = asyncio.create_task(ask(queue, range(9)))
    await waiting(queue, 9)
    with pytest.raises(Overloaded, match=r"9 positions are already waiting for .*; 5000 more would be answered in"):
        await ask(queue, range(5000))
    short = asyncio.create_task(ask(queue, [1]))
    await waiting(queue, 10)
    gate.open.set()
    await asyncio.gather(running, held, short)
