"""The engine's process: start, end, failures and pauses."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from pathlib import Path

import chess
import pytest

from movemask.games.engine import Engine, Evaluation
from tests.games.engines import program, starts

BOARDS = [chess.Board(), chess.Board("4k3/8/8/8/8/8/4P3/4K3 w - - 0 1")]


async def evaluated(engine: Engine) -> list[int]:
    async with aclosing(engine.of(BOARDS, [1] * len(BOARDS))) as evaluations:
        return [place async for place, _ in evaluations]


@pytest.mark.anyio
async def test_process_starts_on_demand_and_ends_when_idle(tmp_path: Path) -> None:
    engine = Engine(program(tmp_path, "well"), idle=0)
    async with aclosing(engine):
        assert not (tmp_path / "starts").exists()
        assert await evaluated(engine) == [0, 1]
        evaluation = await engine.evaluate(BOARDS[0], "another game")
        assert isinstance(evaluation, Evaluation)
        assert evaluation.expected == 0.5
        assert starts(tmp_path) == 1
        loop = asyncio.get_running_loop()
        idle = loop.create_future()
        loop.call_later(0, idle.set_result, None)  # after the engine's own
        await idle
        assert await evaluated(engine) == [0, 1]
        assert starts(tmp_path) == 2


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("how", "places", "why"), [("dies", [0], "died unexpectedly"), ("silent", [], "no answer for")]
)
async def test_failing_engine_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str, places: list[int], why: str
) -> None:
    engine = Engine(program(tmp_path, how), stuck=20 if places else 0.2, pause=0)
    async with aclosing(engine):
        assert await evaluated(engine) == places
        assert engine.ready
        assert await evaluated(engine) == places  # it was tried again
    (record,) = (one for one in caplog.records if one.levelno >= logging.ERROR)
    assert f"{tmp_path / how} has failed: " in record.message
    assert why in record.message


@pytest.mark.anyio
async def test_chess960_is_no_failure_of_the_engine(tmp_path: Path) -> None:
    """Nobody's games got evaluations for a minute."""
    async with aclosing(Engine(program(tmp_path, "well"))) as engine:
        assert await engine.evaluate(chess.Board(chess960=True), "a game") is None
        assert engine.ready
        assert await evaluated(engine) == [0, 1]
        assert starts(tmp_path) == 1


@pytest.mark.anyio
async def test_failed_engine_pauses(tmp_path: Path) -> None:
    async with aclosing(Engine(str(tmp_path / "nothing there"))) as engine:
        assert engine.ready
        assert await evaluated(engine) == []
        assert not engine.ready
    assert not Engine(None).ready
