"""The trial: foreign networks in a process of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike
from onnx import parser

from movemask.network.registry import load_entry
from tests.networks import NO_VALUE, ONNX_TOML, Tensor, write_graph, write_judge
from tests.processes import contents, run


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


def write_crash(file: Path) -> None:
    """A network that ends the process that runs it, by SIGFPE."""
    write_steps(file, CRASH, zero=0, one=1, lowest=-(2**63))


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
@pytest.mark.parametrize(("name", "message"), [("crashes", "ended with SIGFPE"), ("huge", "allocate")])
def test_network_that_ends_its_process_is_not_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.setenv("MOVEMASK_TRIAL_SECONDS", "600")
    write_crash(tmp_path / "crashes.onnx")
    huge = ["wide = Expand(flat, shape)", "spoilt = ReduceMax <keepdims = 0> (wide, axis)"]
    write_steps(tmp_path / "huge.onnx", huge, shape=[1 << 20, 1, 1152], axis=[0])
    folder = tmp_path / "m"
    folder.mkdir()
    write_judge(folder / "good.onnx")
    (folder / "good.toml").write_text(ONNX_TOML)
    before = contents(folder)
    options = ("--contract", "maia2", "--models-dir", folder, "--force")
    result = run("models", "add", tmp_path / f"{name}.onnx", *options)
    assert result.exit_code == 1
    assert message in result.output
    assert contents(folder) == before


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/zero is Linux's")
def test_unreadable_file_fails_its_own_model(tmp_path: Path) -> None:
    write_steps(tmp_path / "unknown.onnx", ["spoilt = Teleport(flat)"])
    write_judge(tmp_path / "blind.onnx", faults=["blind"])
    os.symlink("/dev/zero", tmp_path / "device.onnx")
    cases = {
        "unknown": (NO_VALUE, "Teleport"),
        "blind": (NO_VALUE, "the same logits"),
        "device": (NO_VALUE, "not a regular file"),
        "nul": (NO_VALUE + '[network]\nfile = "a\\u0000b"', "must be the name of a file"),
        "line": (NO_VALUE + '[network]\nfile = "a\\nb"', "must be the name of a file"),
        "deep": ("a = " + "[" * 100_000, ""),
    }
    for name, (text, words) in cases.items():
        file = tmp_path / f"{name}.toml"
        file.write_text(text)
        entry = load_entry(file, 1)
        assert not entry.served
        assert words in str(entry.failure), name
