"""What a user would lose: their turn at the engine beside those who send much, and a word when it is too much."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import chess
import pytest

from movemask.errors import Overloaded
from movemask.games.engine import Engine
from movemask.server.queue.engine_queue import EngineQueue
from movemask.server.queue.fair import SHARE
from tests.games.engines import program

BOARDS = [chess.Board()] * 40


@pytest.mark.anyio
async def test_clients_take_turns(tmp_path: Path) -> None:
    async with aclosing(EngineQueue(Engine(program(tmp_path, "well")))) as queue:
        came: list[str] = []

        async def follow(client: str) -> None:
            async for _ in queue.evaluations(BOARDS, client):
                came.append(client)

        await asyncio.gather(follow("much"), follow("much"), follow("other"))
        assert len(came) == 3 * len(BOARDS)
        assert came.index("other") <= 2 * SHARE
        assert abs(came[: 2 * len(BOARDS)].count("other") - len(BOARDS)) <= SHARE


@pytest.mark.anyio
async def test_who_leaves_leaves_nothing_to_do(tmp_path: Path) -> None:
    async with aclosing(EngineQueue(Engine(program(tmp_path, "well")))) as queue:
        async with aclosing(queue.evaluations(BOARDS, "a")) as found:
            assert (await anext(found))[0] == 0
            assert queue.waiting > 0
        assert queue.waiting == 0
        assert [place async for place, _ in queue.evaluations(BOARDS[:2], "b")] == [0, 1]


@pytest.mark.anyio
async def test_beyond_a_bound_clients_are_told_when_to_come_again(tmp_path: Path) -> None:
    async with aclosing(EngineQueue(Engine(program(tmp_path, "well")))) as queue:
        queue.admit(5000)  # nothing waits
        async with aclosing(queue.evaluations(BOARDS, "a")) as found:
            await anext(found)
            queue.admit(900)
            with pytest.raises(Overloaded, match="already waiting for the engine") as refused:
                queue.admit(1024)
            assert refused.value.retry_after


@pytest.mark.anyio
@pytest.mark.parametrize("closed", [False, True])
async def test_requests_that_come_at_once_count_before_they_begin_and_not_when_they_never_do(
    tmp_path: Path, closed: bool
) -> None:
    async with aclosing(EngineQueue(Engine(program(tmp_path, "well")))) as queue:
        engine = queue.for_client("a", lambda positions: None)
        assert engine is not None
        first = engine.of([chess.Board()] * 1000)
        with pytest.raises(Overloaded, match="1000 positions are already waiting for the engine"):
            engine.of([chess.Board()] * 1000)
        if closed:
            await first.aclose()
        del first
        while queue.waiting:
            await asyncio.sleep(0)
        assert not (tmp_path / "starts").exists(), "the engine works for nobody"


@pytest.mark.anyio
async def test_when_the_engine_fails_nobody_waits_for_it(tmp_path: Path) -> None:
    async with aclosing(EngineQueue(Engine(program(tmp_path, "dies")))) as queue:

        async def follow(client: str) -> int:
            return len([place async for place, _ in queue.evaluations(BOARDS, client)])

        assert sum(await asyncio.gather(follow("a"), follow("b"))) == 1
        charged: list[int] = []
        engine = queue.for_client("a", charged.append)
        assert engine is not None
        assert [place async for place, _ in engine.of(BOARDS)] == []  # it is left alone for a while
        assert charged == [0]
        assert queue.waiting == 0
    assert EngineQueue(Engine(None)).for_client("a", charged.append) is None
