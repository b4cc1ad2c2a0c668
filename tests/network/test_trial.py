"""What an operator would lose: a service that a network file from elsewhere cannot take down."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike
from onnx import parser

from movemask.network.trial import Trial
from tests.networks import NO_VALUE, ONNX_TOML, Tensor, write_graph, write_judge, write_loop
from tests.processes import call, served, stopped, until


def write_steps(file: Path, steps: list[str], **constants: ArrayLike) -> None:
    """A network for maia2-18: the steps make `spoilt` of `flat`, and random weights make logits of that."""
    weight = np.random.default_rng(4).normal(size=(18 * 64, 1880)).astype(np.float32)
    nodes = [parser.parse_node(step) for step in ("flat = Flatten(planes)", *steps, "logits = MatMul(spoilt, weight)")]
    outputs = [Tensor("logits", (1880,))]
    write_graph(file, nodes, [Tensor("planes", (18, 8, 8))], outputs, {"weight": weight, **constants})


#: Divides the lowest whole number by -1, whose result does not exist: the processor ends the process.
CRASH = [
    "whole = Cast <to = 7> (flat)",
    "nothing = Mul(whole, zero)",
    "minus_one = Sub(nothing, one)",
    "divided = Div(lowest, minus_one)",
    "spoilt = Cast <to = 1> (divided)",
]


def write_hostile(folder: Path) -> dict[str, str]:
    """Models that only a process of their own can try, one that is no network, and what must be told of each."""
    write_steps(folder / "crashes.onnx", CRASH, zero=0, one=1, lowest=-(2**63))
    huge = ["wide = Expand(flat, shape)", "spoilt = ReduceMax <keepdims = 0> (wide, axis)"]
    write_steps(folder / "huge.onnx", huge, shape=[1 << 20, 1, 1152], axis=[0])
    write_steps(folder / "unknown.onnx", ["spoilt = Teleport(flat)"])
    write_judge(folder / "blind.onnx", faults=["blind"])
    os.symlink("/dev/zero", folder / "device.onnx")
    told = {
        "crashes": "ended with SIGFPE",
        "huge": "allocate",
        "unknown": "Teleport",
        "blind": "the same logits",
        "device": "not a regular file",
    }
    for name in told:
        (folder / f"{name}.toml").write_text(NO_VALUE)
    return told


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory and /dev/zero are Linux's")
def test_hostile_networks_are_refused_in_words_while_the_service_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOVEMASK_TRIAL_SECONDS", "600")  # which only the endless one of the next test would meet
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "m"
    folder.mkdir()
    write_judge(folder / "good.onnx")
    (folder / "good.toml").write_text(ONNX_TOML)
    (tmp_path / "new").mkdir()
    told = write_hostile(tmp_path / "new")
    with served(folder) as (process, port):
        for file in (tmp_path / "new").iterdir():
            file.rename(folder / file.name)

        def refused() -> dict[str, str] | None:
            assert call(port, "/v1/policy", {"moves": []})["model"]["name"] == "good"
            found = {one["name"]: one["failure"] for one in call(port, "/v1/models")["models"] if "failure" in one}
            return found if len(found) == len(told) else None

        found = until(refused, "each has been refused")
        assert found
        for name, words in told.items():
            assert words in found[name], name
        assert call(port, "/readyz")["status"] == "ready"
        served_models = re.findall(r"^movemask_model_served\{.* (\S+)$", call(port, "/metrics"), re.M)
        assert sorted(served_models) == ["0.0"] * len(told) + ["1.0"]
        assert stopped(process) == 0


def test_a_network_that_came_through_is_known_and_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_judge(tmp_path / "good.onnx")
    (tmp_path / "good.toml").write_text(ONNX_TOML)
    assert Trial(60).failed(tmp_path / "good.toml") is None
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    assert Trial(60).failed(tmp_path / "good.toml") is None
    write_judge(tmp_path / "good.onnx", inverted=True)
    with pytest.raises(FileNotFoundError):
        Trial(60).failed(tmp_path / "good.toml")


def test_a_network_that_failed_is_not_tried_again_by_the_same_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_loop(tmp_path / "endless.onnx")
    file = tmp_path / "endless.toml"
    file.write_text(NO_VALUE)
    first = Trial(3, "service").failed(file)
    assert first is not None
    with monkeypatch.context() as nowhere:
        nowhere.setattr(sys, "executable", str(tmp_path / "nowhere"))
        assert Trial(3, "service").failed(file) == first
        with pytest.raises(FileNotFoundError):  # a new start tries it anew
            Trial(3, "another").failed(file)
        file.write_text(NO_VALUE + "\n# changed\n")
        with pytest.raises(FileNotFoundError):
            Trial(3, "service").failed(file)
