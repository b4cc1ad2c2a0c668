"""The engine's queue: turns, room and failures."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import chess
import pytest

from movemask.games.engine import Engine
from movemask.server.queue.engine_queue import EngineQueue
from movemask.server.queue.fair import SHARE
from tests.games.engines import program


def different(count: int, first: int = 1) -> list[chess.Board]:
    """Positions of which no two are the same: their move numbers begin at `first`."""
    return [chess.Board(f"4k3/8/8/8/8/8/4P3/4K3 w - - 0 {first + number}") for number in range(count)]


BOARDS = different(40)
NODES = [1] * len(BOARDS)


@pytest.mark.anyio
async def test_clients_take_turns(tmp_path: Path) -> None:
    async with aclosing(EngineQueue(Engine(program(tmp_path, "well")))) as queue:
        came: list[str] = []

        async def follow(client: str, first: int) -> None:
            async for _ in queue.evaluations(different(len(BOARDS), first), client, NODES):
                came.append(client)

        await asyncio.gather(follow("much", 1), follow("much", 1001), follow("other", 2001))
        assert len(came) == 3 * len(BOARDS)
        assert came.index("other") <= 2 * SHARE
        assert abs(came[: 2 * len(BOARDS)].count("other") - len(BOARDS)) <= SHARE


@pytest.mark.anyio
async def test_positions_of_a_client_that_leaves_are_dropped(tmp_path: Path) -> None:
    async with aclosing(EngineQueue(Engine(program(tmp_path, "well")))) as queue:
        async with aclosing(queue.evaluations(BOARDS, "a", NODES)) as evaluations:
            assert (await anext(evaluations))[0] == 0
            assert queue.waiting > 0
        assert queue.waiting == 0
        assert [place async for place, _ in queue.evaluations(BOARDS[:2], "b", NODES)] == [0, 1]


@pytest.mark.anyio
async def test_client_takes_half_of_the_free_room(tmp_path: Path) -> None:
    """One request of 1,024 moves once filled the queue, and every other review was a 503."""
    async with aclosing(EngineQueue(Engine(program(tmp_path, "well")))) as queue:
        charged: list[int] = []
        places, requests = [], []
        for client in ("a", "b", "c", "a"):
            engine = queue.for_client(client, charged.append)
            assert engine is not None
            before = queue.waiting
            requests.append(engine.of(different(1000), [1] * 1000))
            places.append(queue.waiting - before)
        assert places == [512, 256, 128, 0]
        assert charged == [1000, 1000, 1000, 0], "what is not evaluated is not charged"
        assert [place async for place, _ in requests[3]] == []
        for request in requests[:3]:
            await request.aclose()
        del request
        requests.clear()
        while queue.waiting:
            await asyncio.sleep(0)
        assert not (tmp_path / "starts").exists(), "the engine works for nobody"


@pytest.mark.anyio
async def test_more_positions_than_room_are_all_evaluated(tmp_path: Path) -> None:
    async with aclosing(EngineQueue(Engine(program(tmp_path, "well")))) as queue:
        places = []
        async for place, _ in queue.evaluations(different(600), "a", [1] * 600):
            assert queue.waiting <= 512
            places.append(place)
        assert places == list(range(600))


@pytest.mark.anyio
async def test_position_is_searched_once(tmp_path: Path) -> None:
    """A game that was just reviewed was searched anew for its annotated PGN, for 17 s."""
    async with aclosing(EngineQueue(Engine(program(tmp_path, "dies")))) as queue:

        async def places(board: chess.Board, nodes: int) -> list[int]:
            return [place async for place, _ in queue.evaluations([board], "a", [nodes])]

        assert await places(BOARDS[0], 1) == [0]
        assert await places(BOARDS[0].copy(), 1) == [0], "the engine would end at its second position"
        assert await places(BOARDS[0], 2) == [], "a deeper search is another"


@pytest.mark.anyio
async def test_failing_engine_ends_all_waits(tmp_path: Path) -> None:
    async with aclosing(EngineQueue(Engine(program(tmp_path, "dies")))) as queue:

        async def follow(client: str, first: int) -> int:
            boards = different(len(BOARDS), first)
            return len([place async for place, _ in queue.evaluations(boards, client, NODES)])

        assert sum(await asyncio.gather(follow("a", 1), follow("b", 1001))) == 1
        charged: list[int] = []
        engine = queue.for_client("a", charged.append)
        assert engine is not None
        assert [place async for place, _ in engine.of(BOARDS, NODES)] == []  # it is left alone for a while
        assert charged == [0]
        assert queue.waiting == 0
    assert EngineQueue(Engine(None)).for_client("a", charged.append) is None
