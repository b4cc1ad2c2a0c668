"""What a user would lose: a lone request on all cores, and the same answer as on one."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from movemask.evaluate import Answer, Query
from movemask.network.model import Session
from movemask.network.registry import load_registry, lone_session
from tests.conftest import ROOT
from tests.networks import fake_model, pipeline
from tests.processes import until

pytestmark = pytest.mark.anyio

FENS = ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", "8/P7/8/8/8/5k2/7p/5K2 b - - 0 1")


def moves(answer: Answer) -> tuple[list[int], list[float], float | None]:
    return *answer.policy, answer.raw


async def test_the_shipped_network_answers_a_lone_request_the_same_on_two_cores() -> None:
    model = load_registry(ROOT / "models", None, 1).get(None)
    opened: list[Session | None] = []

    def opens() -> Session | None:
        opened.append(lone_session(model, 2))
        return opened[-1]

    with closing(pipeline(model)) as plain, closing(pipeline(model, lone_session=opens)) as quick:
        expected = await plain.submit([Query(fen) for fen in FENS], moves)
        assert await quick.submit([Query(FENS[0])], moves) == expected[:1]
        await asyncio.to_thread(until, lambda: opened, "the session is opened after the first reply")
        await asyncio.sleep(0.1)
        used = _counted(opened[0])
        for fen, answer in zip(FENS * 3, expected * 3, strict=True):
            assert await quick.submit([Query(fen)], moves) == [answer]
        assert used == [1, 1, 1], "at first the sessions take turns"
        assert await quick.submit([Query(fen) for fen in FENS * 8], moves) == expected * 8
        assert used == [1, 1, 1], "many positions go to one core each"
        assert len(opened) == 1


async def test_a_session_that_cannot_be_opened_is_asked_for_once() -> None:
    asked: list[None] = []
    with closing(pipeline(fake_model(), lone_session=lambda: asked.append(None))) as quick:
        for _ in range(3):
            assert len(await quick.submit([Query(FENS[0])], moves)) == 1
            await asyncio.to_thread(until, lambda: asked, "it is asked for after the first reply")
    assert len(asked) == 1


def _counted(session: Session | None) -> list[int]:
    """The sizes of the batches that the session runs from now on."""
    assert session is not None
    sizes: list[int] = []
    run = session.run

    def counted(feeds, outputs):  # type: ignore[no-untyped-def]
        sizes.append(len(next(iter(feeds.values()))))
        return run(feeds, outputs)

    session.run = counted  # type: ignore[method-assign]
    return sizes
