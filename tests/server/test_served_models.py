"""What a user would lose: models added, replaced and removed while requests are answered, and none of them dropped."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from movemask.errors import ModelUnavailable, UnknownModel
from movemask.evaluate import Query
from movemask.server.pipeline import Pipeline
from movemask.server.served_models import ServedModels
from movemask.server.settings import Settings
from movemask.server.tally import Tally, new_table
from tests.networks import ONNX_TOML, pipeline, write_fake, write_judge
from tests.processes import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_fake(tmp_path / "m", "first")
    return tmp_path / "m"


@pytest.fixture
def opened() -> Iterator[list[ServedModels]]:
    made: list[ServedModels] = []
    yield made
    for one in made:
        one.close()


def serving(
    folder: Path, opened: list[ServedModels], default: str | None = None, tally: Tally | None = None
) -> ServedModels:
    settings = Settings.read(models_dir=folder, default_model=default, trial_seconds=0)
    opened.append(ServedModels(settings, pipeline, tally=tally, poll_seconds=0))
    opened[-1].refresh()
    return opened[-1]


def settled(one: ServedModels) -> bool:
    """A change is taken over when it looks the same twice."""
    assert not one.refresh()
    return one.refresh()


def write_net(folder: Path, name: str = "net", **arguments: Any) -> None:
    write_judge(folder / f"{name}.onnx", **arguments)
    (folder / f"{name}.toml").write_text(ONNX_TOML)


async def answer(running: Pipeline) -> None:
    assert await running.submit([(Query(), lambda one: one.status)]) == ["ongoing"]


async def ask(one: ServedModels, name: str | None = None) -> str:
    with one.lease(name) as running:
        await answer(running)
        return running.model.digest


async def test_requests_under_way_finish_on_the_model_they_began_with(folder: Path, opened: list[ServedModels]) -> None:
    write_net(folder)
    one = serving(folder, opened)

    with one.lease("net") as old:
        write_judge(folder / "net.onnx", inverted=True)
        (folder / "net.toml").write_text(ONNX_TOML + 'order = "loss_draw_win"\n')
        assert settled(one)
        new = await ask(one, "net")
        assert new != old.model.digest
        assert old.queue.fault is None
        await answer(old)
    await asyncio.to_thread(until, lambda: old.queue.closed, "the old one is closed")


def test_a_replacement_that_fails_its_check_changes_nothing_but_is_told(
    folder: Path, opened: list[ServedModels]
) -> None:
    write_net(folder)
    one = serving(folder, opened)
    before = asyncio.run(ask(one, "net"))
    write_net(folder, inverted=True)
    assert settled(one)
    entry = one.registry.entry("net")
    assert entry.served
    assert entry.digest == before
    assert entry.rejected is not None
    assert "won positions score 0.00" in entry.rejected
    assert asyncio.run(ask(one, "net")) == before
    write_net(folder)
    assert settled(one)
    assert one.registry.entry("net").rejected is None


def test_a_model_taken_away_is_not_replaced_by_another(folder: Path, opened: list[ServedModels]) -> None:
    write_net(folder)
    one = serving(folder, opened, "net")
    (folder / "net.toml").unlink()
    assert settled(one)
    for name in ("net", None):  # the default is said to be gone, and another is not slipped in
        with pytest.raises(UnknownModel, match="no model 'net'; available: first"):
            asyncio.run(ask(one, name))
    (folder / "first.toml").unlink()
    assert not settled(one)  # an empty folder changes nothing
    assert not one.refresh()
    asyncio.run(ask(one, "first"))


def test_a_worker_that_cannot_serve_the_default_does_not_answer_with_another_model(
    folder: Path, opened: list[ServedModels]
) -> None:
    write_fake(folder, "other")
    with new_table(2) as table:
        tallies = [Tally(table, 2, column) for column in range(2)]
        old = serving(folder, opened, tally=tallies[0])
        (folder / "first.toml").write_text(ONNX_TOML)  # names an output that the network does not have
        assert settled(old)
        assert old.registry.entry("first").rejected is not None
        tallies[0].clear(1)  # the supervisor replaces the other worker
        new = serving(folder, opened, tally=tallies[1])
        assert old.registry.default == new.registry.default == "first"
        with pytest.raises(ModelUnavailable, match="model 'first' failed its check and is not served"):
            asyncio.run(ask(new))
        asyncio.run(ask(old))
        write_fake(folder, "first")
        assert settled(new)
        asyncio.run(ask(new))


def test_a_default_that_one_worker_saw_go_is_soon_the_same_in_all(folder: Path, opened: list[ServedModels]) -> None:
    write_fake(folder, "other")
    with new_table(2) as table:
        one, another = (serving(folder, opened, tally=Tally(table, 2, column)) for column in range(2))
        away = (folder / "first.toml").rename(folder / "first.away")
        assert settled(one)
        assert one.registry.default == "other"
        away.rename(folder / "first.toml")  # before the other worker looks
        another.refresh()
        assert another.registry.default == "other"
        assert settled(one)
        assert one.registry.default == "other"
        (folder / "other.toml").unlink()
        assert settled(one)
        for _ in range(2):
            another.refresh()
        assert one.registry.default == another.registry.default == "first"


def test_a_file_that_is_still_being_copied_is_left_alone(folder: Path, opened: list[ServedModels]) -> None:
    one = serving(folder, opened)
    write_net(folder.parent, "net")
    whole = (folder.parent / "net.onnx").read_bytes()
    shutil.copy(folder.parent / "net.toml", folder)
    for size in (1000, 2000, 3000):
        (folder / "net.onnx").write_bytes(whole[:size])
        assert not one.refresh()
    (folder / "net.onnx").write_bytes(whole)
    assert settled(one)
    assert one.registry.entry("net").served


async def test_no_request_fails_while_a_model_is_replaced_again_and_again(
    folder: Path, opened: list[ServedModels]
) -> None:
    write_net(folder)
    one = serving(folder, opened)
    digests: set[str] = set()
    replaced = asyncio.Event()

    async def client() -> None:
        while not replaced.is_set():
            digests.add(await ask(one, "net"))

    clients = [asyncio.create_task(client()) for _ in range(8)]
    for turn in range(6):
        write_judge(folder.parent / "x.onnx", inverted=turn % 2 == 0)
        (folder.parent / "x.toml").write_text(ONNX_TOML + ("" if turn % 2 else 'order = "loss_draw_win"\n'))
        for ending in ("onnx", "toml"):
            os.replace(folder.parent / f"x.{ending}", folder / f"net.{ending}")
        await asyncio.to_thread(settled, one)
    replaced.set()
    await asyncio.gather(*clients)
    assert len(digests) == 2
