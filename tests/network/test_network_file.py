"""Files of a models folder: external weights, damage, absurd contracts, pipes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from fastapi.testclient import TestClient
from onnx import TensorProto, helper, numpy_helper

from movemask.network.files import ModelFolders
from movemask.network.registry import load_entry
from tests.conftest import Serve
from tests.networks import ONNX_TOML
from tests.weight_files import varint


def external() -> onnx.TensorProto:
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "weights.bin"
    return tensor


def constant() -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["c"], value=external())


def branch() -> onnx.NodeProto:
    inner = helper.make_graph([constant()], "inner", [], [])
    return helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)


PLACES: dict[str, Callable[[onnx.ModelProto], object]] = {
    "graph": lambda model: model.graph.initializer.append(external()),
    "node": lambda model: model.graph.node.append(constant()),
    "branch": lambda model: model.graph.node.append(branch()),
    "sparse tensor": lambda model: model.graph.sparse_initializer.add().values.CopyFrom(external()),
    "function": lambda model: model.functions.append(helper.make_function("d", "f", [], ["c"], [constant()], [])),
    "training": lambda model: model.training_info.add().initialization.initializer.append(external()),
}


@pytest.mark.parametrize("place", PLACES)
def test_external_weights_are_refused(models: Path, place: str) -> None:
    model = onnx.load(models / "net.onnx")
    PLACES[place](model)
    (models / "weights.bin").write_bytes(bytes(16))
    assert "its weights are in another file" in str(failure(models, model.SerializeToString()))


def test_loading_damaged_files_ends(models: Path) -> None:
    good = (models / "net.onnx").read_bytes()
    rng = np.random.default_rng(0)
    deep = b"\x3a\x00"
    for _ in range(300):
        deep = b"\x0a" + varint(len(deep)) + deep  # a node in a node
        deep = b"\x2a" + varint(len(deep)) + deep
        deep = b"\x32" + varint(len(deep)) + deep
    for number in range(200):
        damaged = bytearray(good[: 3000 + number])
        for at in rng.integers(0, len(damaged), 20):
            damaged[at] = rng.integers(256)
        failure(models, bytes(damaged))
    for raw in (b"", b"\x00", b"\xff" * 50, b"\x3a" + varint(len(deep)) + deep, rng.bytes(10_000)):
        assert failure(models, raw) is not None


def failure(models: Path, raw: bytes) -> str | None:
    """Why a file of these bytes is not served."""
    (models / "net.onnx").write_bytes(raw)
    return load_entry(models / "net.toml", 1).failure


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = " + "[" * 60_000 + "]" * 60_000, "nested more than 16 deep"),
        ("[card]\n" + ".".join("a" * 100) + " = 1\n", "nested more than 16 deep"),
        ("x = {" + " . ".join(["a", '"b c"', "'d'"] * 5_000) + " = 1}\n", "nested more than 16 deep"),  # 1.5 GB
        (ONNX_TOML + "\n[card]\nx = " + "[" * 20 + "]" * 20, "nested more than 16 deep"),
        ("#" * 200_000, "larger than 131072 bytes"),
        ("x = " + "{a=" * 20_000 + "1" + "}" * 20_000, "nested more than 16 deep"),
    ],
)
def test_absurd_contracts_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "net.toml").write_text(text)
    assert message in str(load_entry(tmp_path / "net.toml", 1).failure)


def test_unprintable_model_names_are_ignored(tmp_path: Path) -> None:
    for name in (" ", ".", "-_-", "net"):
        (tmp_path / f"{name}.toml").write_text(ONNX_TOML)
    assert list(ModelFolders((tmp_path,)).found()) == ["net"]


def test_pipes_and_devices_do_not_block_the_service(serve: Serve, models: Path) -> None:
    for name in ("piped", "endless"):
        (models / f"{name}.toml").write_text(ONNX_TOML)
    os.mkfifo(models / "piped.onnx")
    (models / "endless.onnx").symlink_to("/dev/zero")
    os.mkfifo(models / "contract.toml")
    (models / "folder.toml").mkdir()
    client: TestClient = serve(models)
    assert client.post("/v1/policy", json={"moves": [], "model": "net"}).status_code == 200
    failures = {entry["name"]: entry.get("failure", "") for entry in client.get("/v1/models").json()["models"]}
    for name in ("piped", "endless", "contract", "folder"):
        assert "is not a regular file" in failures[name], name
    assert client.get("/readyz").status_code in (200, 503)


def test_failures_show_no_path(serve: Serve, models: Path) -> None:
    for name, raw in (("cut", b"\x08\x09"), ("text", b"hello"), ("none", None), ("other", b"")):
        (models / f"{name}.toml").write_text(ONNX_TOML)
        if raw is not None:
            (models / f"{name}.onnx").write_bytes(raw)
    (models / "toml.toml").write_text("x")
    client = serve(models)
    for path in ("/v1/models", "/v1/models/cut", "/readyz"):
        text = client.get(path).text
        assert str(models) not in text
        assert "/home/" not in text
