"""lc0's weight files: conversion, and damaged or unsupported files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from scipy.signal import correlate

from movemask.board.position import Position, boards_of
from movemask.encoding import lc0 as lc0_planes
from movemask.encoding.lc0 import HistoryFill
from movemask.encoding.vocabularies import vocabulary
from movemask.errors import WeightsError
from movemask.network.onnx import OnnxSession
from movemask.network_tools import lc0
from movemask.network_tools.lc0 import POLICY, VALUE, WDL, graph, read_network
from tests.conftest import ROOT
from tests.weight_files import WeightFile, message, number

MAIA = ROOT.parent / "shared" / "maia1"
Numbers = NDArray[np.float64]


def converted(file: Path, folder: Path) -> OnnxSession:
    out = folder / "converted.onnx"
    onnx.save(graph(read_network(file)), out)
    return OnnxSession(out, threads=1)


@pytest.mark.parametrize("name", ["maia-1100", "maia-1500", "maia-1900"])
@pytest.mark.skipif(not MAIA.exists(), reason="maia-1: ../shared/maia1 is not here")
def test_maia_logits_match_lc0(name: str, tmp_path: Path) -> None:
    session = converted(MAIA / f"{name}.pb.gz", tmp_path)
    with gzip.open(MAIA / "lc0_reference.jsonl.gz", "rt") as rows:
        reference = [json.loads(row) for row in rows]
    positions = [Position.read(row["fen"]) for row in reference]
    planes = lc0_planes.encode_all(positions, boards_of(positions), HistoryFill.FEN_ONLY)
    logits, wdl = session.run({"/input/planes": planes}, [POLICY, WDL])
    for row, own_logits, value in zip(reference, logits, wdl, strict=True):
        np.testing.assert_allclose(own_logits[row["slot"]], row[name]["logit"], rtol=1e-5, atol=1e-5)
        assert value[0] - value[2] == pytest.approx(row[name]["q"], abs=1e-5)
        assert value[1] == pytest.approx(row[name]["d"], abs=1e-5)


def plain(x: Numbers, kernel: Numbers) -> Numbers:
    """A same-padded convolution `[I, 8, 8]` → `[O, 8, 8]` by scipy."""
    pad = kernel.shape[2] // 2
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
    return np.stack([correlate(padded, one, mode="valid")[0] for one in kernel])


def second_opinion(network: WeightFile, x: Numbers) -> tuple[Numbers, Numbers]:
    """The network in float64, written from lc0's description, batch norms not folded."""
    weights = network.arrays

    def act(y: Numbers) -> Numbers:
        return np.maximum(y, 0) if network.activation == 0 else y * np.tanh(np.log1p(np.exp(y)))

    def block(name: str, y: Numbers) -> Numbers:
        raw = plain(y, weights[f"{name}.kernel"])
        column = (weights[f"{name}.{part}"][:, None, None] for part in ("mean", "variance", "gamma", "beta"))
        mean, variance, gamma, beta = column
        return (raw - mean) / np.sqrt(variance + 1e-5) * gamma + beta

    y = act(block("stem", x))
    for i in range(network.blocks):
        z = block(f"block{i}.conv2", act(block(f"block{i}.conv1", y)))
        if network.squeezed:
            hidden = act(weights[f"block{i}.w1"] @ z.mean((1, 2)) + weights[f"block{i}.b1"])
            scale, shift = np.split(weights[f"block{i}.w2"] @ hidden + weights[f"block{i}.b2"], 2)
            z = z / (1 + np.exp(-scale))[:, None, None] + shift[:, None, None]
        y = act(z + y)
    if network.flat_policy:
        policy = weights["policy.w"] @ act(block("policy", y)).reshape(-1) + weights["policy.b"]
    else:
        planes = block("policy", act(block("policy1", y)))
        policy = np.array([planes[plane_of(name)] for name in vocabulary("lc0-1858").names()])
    inner = act(weights["value.w1"] @ act(block("value", y)).reshape(-1) + weights["value.b1"])
    value = weights["value.w2"] @ inner + weights["value.b2"]
    if network.scalar_value:
        return policy, np.tanh(value)
    return policy, np.exp(value) / np.exp(value).sum()


def plane_of(name: str) -> tuple[int, int, int]:
    """Plane, rank and file of a slot in a convolutional head, by a walk along the move instead of a formula."""
    file, rank, to_file, to_rank = ord(name[0]) - 97, int(name[1]) - 1, ord(name[2]) - 97, int(name[3]) - 1
    if name[4:]:
        return 64 + 3 * (to_file - file + 1) + "rbq".index(name[4]), rank, file
    plane = 0
    for step in ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)):
        for distance in range(1, 8):
            if (file + distance * step[0], rank + distance * step[1]) == (to_file, to_rank):
                return plane, rank, file
            plane += 1
    for jump in ((1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2)):
        if (file + jump[0], rank + jump[1]) == (to_file, to_rank):
            return plane, rank, file
        plane += 1
    raise AssertionError(name)


@pytest.mark.parametrize(
    "network",
    [
        WeightFile(),
        WeightFile(encoding=2, seed=1),
        WeightFile(encoding=3, seed=2),
        WeightFile(encoding=4, seed=3),
        WeightFile(squeezed=False, seed=4),
        WeightFile(flat_policy=True, seed=5),
        WeightFile(scalar_value=True, seed=6),
        WeightFile(activation=1, seed=7),
        WeightFile(blocks=0, seed=8),
        WeightFile(filters=3, blocks=1, seed=9),
    ],
    ids=lambda network: ",".join(f"{k}={v}" for k, v in vars(network).items() if k not in ("random", "arrays", "seed")),
)
def test_converted_networks_match_numpy(network: WeightFile, tmp_path: Path) -> None:
    session = converted(network.write(tmp_path), tmp_path)
    planes = np.random.default_rng(network.seed).random((3, 112, 8, 8)).astype(np.float32)
    logits, value = session.run({"/input/planes": planes}, [POLICY, VALUE if network.scalar_value else WDL])
    for row in range(3):
        policy, outcome = second_opinion(network, planes[row].astype(np.float64))
        np.testing.assert_allclose(logits[row], policy, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(value[row], outcome, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"input": 3}, "network_format.input is 3"),
        ({"network": 6}, "network_format.network is 6"),
        ({"policy": 3}, "network_format.policy is 3"),
        ({"value": 3}, "network_format.value is 3"),
        ({"activation": 2}, "default_activation is 2"),
    ],
)
def test_unsupported_networks_are_named(changed: dict[str, int], words: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=rf"made\.pb\.gz: format\..*{words}.*lc0 leela2onnx"):
        read_network(WeightFile().write(tmp_path, changed=changed))
    with pytest.raises(WeightsError, match=r"weights\.encoder: attention"):
        read_network(WeightFile().write(tmp_path, extra=message(27, number(1, 1))))


def test_moves_left_head_is_ignored(tmp_path: Path) -> None:
    assert read_network(WeightFile().write(tmp_path, extra=message(12, b""))).blocks


def test_truncated_file_raises(tmp_path: Path) -> None:
    whole = WeightFile(filters=2, blocks=1).net()
    for size in range(0, len(whole), 97):
        file = tmp_path / "cut.pb"
        file.write_bytes(whole[:size])
        with pytest.raises(WeightsError, match=r"^cut\.pb"):
            read_network(file)


def test_decompression_bomb_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lc0, "MAX_UNPACKED_BYTES", 1 << 22)
    file = tmp_path / "bomb.pb.gz"
    file.write_bytes(gzip.compress(bytes(1 << 26)))
    assert file.stat().st_size < 1 << 17
    with pytest.raises(WeightsError, match=r"bomb\.pb\.gz: unpacks to more than 4 MiB"):
        read_network(file)


@pytest.mark.parametrize("raw", [b"", b"\x1f\x8b\x08", b"not a network", bytes(1000), b"\xff" * 1000])
def test_other_files_are_named(raw: bytes, tmp_path: Path) -> None:
    file = tmp_path / "other.pb.gz"
    file.write_bytes(raw)
    with pytest.raises(WeightsError, match=r"^other\.pb\.gz: "):
        read_network(file)


def test_wrong_layer_size_is_named(tmp_path: Path) -> None:
    network = WeightFile()
    file = tmp_path / "made.pb"
    file.write_bytes(network.head() + message(10, network.convolution(1, "stem", 8, 100, 3)))
    with pytest.raises(WeightsError, match=r"weights\.input: .* do not fit a convolution of 112 planes"):
        read_network(file)


def test_layer_with_nan_is_named(tmp_path: Path) -> None:
    network = WeightFile(encoding=4)
    net = network.net()
    file = tmp_path / "made.pb"
    value = network.arrays["block1.w1"].astype("<f4").tobytes()
    file.write_bytes(net.replace(value, np.full(len(value) // 4, np.nan, "<f4").tobytes()))
    with pytest.raises(WeightsError, match=r"residual\[1\]\.se\.w1: holds NaN"):
        read_network(file)
