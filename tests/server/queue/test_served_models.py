"""Which models are served, and which ones a worker needs."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from movemask.errors import ModelUnavailable, SettingsError, UnknownModel
from movemask.evaluate import Query
from movemask.network.onnx import provider_named
from movemask.server.queue.pipeline import ClientPipeline
from movemask.server.queue.served_models import ServedModels
from movemask.server.settings import Settings
from tests.conftest import Serve
from tests.networks import ONNX_TOML, pipeline, write_fake, write_net

pytestmark = pytest.mark.anyio


def loaded(folder: Path, needed: Collection[str] | None = (), **settings: Any) -> ServedModels:
    read = Settings.read(models_dir=folder, **settings)
    provider = provider_named(read.provider)
    folders, default = read.model_folders, read.default_model
    return ServedModels(folders, default, pipeline, needed, runs=read.runs, provider=provider)


async def test_failing_model_leaves_the_others(tmp_path: Path) -> None:
    folder = write_fake(tmp_path / "m", "first").parent
    (folder / "other.toml").write_text(ONNX_TOML)  # without its network
    models = loaded(folder)
    running = ClientPipeline(models.pipeline("first"), "", lambda submission: None)
    assert await running.submit([Query()], lambda answer, _: answer.status) == ["ongoing"]
    with pytest.raises(ModelUnavailable, match=r"model 'other' failed its check and is not served: .*other.onnx"):
        models.pipeline("other")
    with pytest.raises(UnknownModel, match="no model 'none'; available: first, other"):
        models.pipeline("none")
    models.close()


@pytest.mark.parametrize(
    ("failing", "needed", "starts"),
    [
        ("first", (), True),
        ("first", ["first"], False),
        ("other", ["first", "gone"], True),
        ("other", None, False),
    ],
)
def test_needed_models(tmp_path: Path, failing: str, needed: Collection[str] | None, starts: bool) -> None:
    folder = write_fake(tmp_path / "m", "first").parent
    write_fake(folder, "other")
    (folder / f"{failing}.onnx").write_bytes(b"no network")
    if starts:
        loaded(folder, needed, default_model="first").close()
        return
    with pytest.raises(SettingsError, match=f"models_dir: {folder}/{failing}.toml: "):
        loaded(folder, needed, default_model="first")


def test_file_with_invalid_name_is_skipped(serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_net(tmp_path / "m").parent
    for name in (b"bad\xff", b"two\nlines", b"bell\x07"):
        with open(os.path.join(os.fsencode(folder), name + b".toml"), "w") as file:
            file.write(ONNX_TOML)
    client = serve(folder)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert all(name in line for name in (r"bad\udcff.toml", r"two\nlines.toml", r"bell\x07.toml"))
    assert [one["name"] for one in client.get("/v1/models").json()["models"]] == ["net"]
    assert 'movemask_model_served{model="net"} 1.0' in client.get("/metrics").text
    assert client.post("/v1/policy", json={"moves": [], "model": "x"}).status_code == 404
