"""What a user would lose: answers in order, batches, a bounded wait, and no work for a client that has gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest

from movemask.board.encoded import EncodedPosition
from movemask.board.position import Position
from movemask.errors import InferenceFailed, Overloaded, ShuttingDown
from movemask.inference.batcher import Batcher, BatchRun
from movemask.inference.model import Model
from movemask.inference.session import Array, FakeSession, TensorInfo
from tests.networks import contract, fake_model


class Gated:
    """The fake behind a gate: a run begins, tells so, and waits until it is let through."""

    def __init__(self, session: FakeSession, at_once: int = 1) -> None:
        self._session = session
        self.at_once = at_once
        self.begun = threading.Semaphore(0)
        self.open = threading.Event()
        self.sizes: list[int] = []
        self.alone: list[bool] = []
        self.error: Exception | None = None

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        return self._session.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        return self._session.outputs

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str], *, alone: bool = True) -> list[Array]:
        self.sizes.append(len(feeds["planes"]))
        self.alone.append(alone)
        self.begun.release()
        assert self.open.wait(30)
        if self.error is not None:
            raise self.error
        return self._session.run(feeds, outputs)


@pytest.fixture
def gate() -> Gated:
    session = fake_model().session
    assert isinstance(session, FakeSession)
    return Gated(session)


@pytest.fixture
def pair() -> Iterator[tuple[Batcher, Gated]]:
    """A session that runs two at once."""
    session = fake_model().session
    assert isinstance(session, FakeSession)
    gate = Gated(session, at_once=2)
    made = Batcher(Model("pair", "sha256:x", contract(), gate), max_batch=8, max_waiting=64)
    yield made, gate
    gate.open.set()
    made.close()


@pytest.fixture
def gated(gate: Gated) -> Iterator[Batcher]:
    made = Batcher(Model("gated", "sha256:x", contract(), gate), max_batch=8, max_waiting=16)
    yield made
    gate.open.set()
    made.close()


def encoded(model: Model, count: int) -> list[EncodedPosition]:
    moves = [move.uci() for move in Position.read().board.legal_moves]
    return [model.encode(Position.read(moves=[moves[i % 20]])) for i in range(count)]


async def begun(gate: Gated) -> None:
    assert await asyncio.to_thread(gate.begun.acquire, timeout=30)


async def waiting(batcher: Batcher, count: int) -> None:
    """Lets the loop run until `count` positions wait."""
    while batcher.waiting != count:
        await asyncio.sleep(0)


def test_a_long_submission_is_cut_into_batches_and_comes_back_whole_and_in_order() -> None:
    runs: list[BatchRun] = []
    model = fake_model()
    batcher = Batcher(model, max_batch=8, max_waiting=4, watch=runs.append)
    positions = encoded(model, 20)
    inferred = asyncio.run(batcher.submit(positions))
    batcher.close()
    np.testing.assert_array_equal(inferred.evaluation.logits, model.evaluate(positions).logits)
    assert [run.size for run in runs] == [8, 8, 4]
    assert inferred.queue_seconds >= 0
    assert inferred.inference_seconds == pytest.approx(sum(run.seconds for run in runs))


def test_two_that_are_idle_halve_a_batch_and_it_comes_back_whole_and_in_order(pair: tuple[Batcher, Gated]) -> None:
    batcher, gate = pair

    async def story() -> None:
        positions = encoded(batcher.model, 20)
        asked = asyncio.create_task(batcher.submit(positions))
        await begun(gate)
        await begun(gate)  # both run, before either is done
        assert sorted(gate.sizes) == [8, 8]
        gate.open.set()
        expected = batcher.model.evaluate(positions).logits
        np.testing.assert_array_equal((await asked).evaluation.logits, expected)
        gate.sizes.clear()
        np.testing.assert_array_equal((await batcher.submit(positions[:5])).evaluation.logits, expected[:5])

    asyncio.run(story())
    assert gate.sizes[0] == 3  # half, rounded up; who is done first takes the rest
    assert sum(gate.sizes) == 5


def test_a_lone_position_has_every_thread_and_two_share_them(pair: tuple[Batcher, Gated]) -> None:
    batcher, gate = pair

    async def story() -> None:
        positions = encoded(batcher.model, 2)
        first = asyncio.create_task(batcher.submit(positions[:1]))
        await begun(gate)
        second = asyncio.create_task(batcher.submit(positions[1:]))
        await begun(gate)
        gate.open.set()
        await asyncio.gather(first, second)

    asyncio.run(story())
    assert gate.alone == [True, False]


def test_what_arrives_while_the_network_runs_becomes_one_batch(gated: Batcher, gate: Gated) -> None:
    async def story() -> None:
        positions = encoded(gated.model, 6)
        first = asyncio.create_task(gated.submit(positions[:1]))
        await begun(gate)
        rest = [asyncio.create_task(gated.submit([position])) for position in positions[1:]]
        await waiting(gated, 5)
        gate.open.set()
        results = await asyncio.gather(first, *rest)
        expected = gated.model.evaluate(positions).logits
        for row, result in enumerate(results):
            np.testing.assert_array_equal(result.evaluation.logits[0], expected[row])

    asyncio.run(story())
    assert gate.sizes[:2] == [1, 5]


def test_a_full_queue_refuses_with_a_time_to_come_back_and_an_idle_one_takes_any_batch(
    gated: Batcher, gate: Gated
) -> None:
    async def story() -> None:
        positions = encoded(gated.model, 20)
        first = asyncio.create_task(gated.submit(positions))  # more than may wait, but nothing waits
        await begun(gate)
        await waiting(gated, 12)
        second = asyncio.create_task(gated.submit(positions[:4]))
        await waiting(gated, 16)
        with pytest.raises(Overloaded, match="16 positions wait for model gated already; the queue takes 16") as caught:
            await gated.submit(positions[:1])
        assert caught.value.retry_after >= 1
        gate.open.set()
        await asyncio.gather(first, second)

    asyncio.run(story())


def test_what_waits_for_a_client_that_has_gone_is_not_run(gated: Batcher, gate: Gated) -> None:
    async def story() -> None:
        positions = encoded(gated.model, 9)
        first = asyncio.create_task(gated.submit(positions[:1]))
        await begun(gate)
        gone = asyncio.create_task(gated.submit(positions[1:6]))
        stays = asyncio.create_task(gated.submit(positions[6:]))
        await waiting(gated, 8)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert gated.waiting == 3
        gate.open.set()
        await asyncio.gather(first, stays)

    asyncio.run(story())
    assert gate.sizes == [1, 3]


def test_a_batch_that_fails_fails_its_requests_and_the_next_is_served(gated: Batcher, gate: Gated) -> None:
    async def story() -> None:
        positions = encoded(gated.model, 12)
        gate.error = RuntimeError("out of memory")
        gate.open.set()
        with pytest.raises(InferenceFailed, match="model gated: RuntimeError: out of memory"):
            await gated.submit(positions)
        assert gated.waiting == 0
        gate.error = None
        assert (await gated.submit(positions[:2])).evaluation.logits.shape == (2, 1880)

    asyncio.run(story())


def test_closing_finishes_what_waits_and_takes_no_more(gated: Batcher, gate: Gated) -> None:
    async def story() -> None:
        positions = encoded(gated.model, 3)
        tasks = [asyncio.create_task(gated.submit([position])) for position in positions]
        await begun(gate)
        closing = asyncio.create_task(asyncio.to_thread(gated.close))
        gate.open.set()
        await asyncio.gather(closing, *tasks)
        assert not gated.alive
        with pytest.raises(ShuttingDown):
            await gated.submit(positions)

    asyncio.run(story())


def test_an_empty_submission_is_a_mistake_of_the_caller(gated: Batcher) -> None:
    with pytest.raises(ValueError, match="positions: nothing to run"):
        asyncio.run(gated.submit([]))
