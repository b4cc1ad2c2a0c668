"""What a user would lose: weights whose rounding the network's answers do not show."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

from movemask.network.onnx import OnnxSession
from movemask.quantisation.network import LayeredNetwork, Moments
from movemask.quantisation.writing import Rounded, rounded
from tests.networks import Tensor, write_graph

Numbers = NDArray[np.float64]


def moments(inputs: NDArray[np.float32], *, centred: bool = True) -> Moments:
    found = Moments(inputs.shape[1], centred=centred)
    for part in np.array_split(inputs, 3):
        found.add(part)
    return found


def correlated(size: int, seed: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(4000, size)) @ rng.normal(size=(size, size))
    return (mixed + rng.normal(size=size)).astype(np.float32)


def error(weights: Numbers, found: Rounded, inputs: NDArray[np.float32]) -> float:
    """Mean squared change of the outputs."""
    return float((((found.weights - weights) @ inputs.T + found.bias[:, None]) ** 2).mean())


def nearest(weights: Numbers, largest: int) -> Rounded:
    scales = np.abs(weights).max(axis=1) / largest
    return Rounded(np.round(weights / scales[:, None]) * scales[:, None], scales, np.zeros(len(weights)))


@pytest.mark.parametrize("largest", [64, 127])
def test_outputs_change_less_than_by_rounding_each_weight_alone(largest: int) -> None:
    rng = np.random.default_rng(1)
    inputs, weights = correlated(40, 2), rng.normal(size=(16, 40))
    found = rounded(weights, moments(inputs), largest)
    steps = found.weights / found.scales[:, None]
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)
    assert np.abs(steps).max() <= largest + 1e-9
    assert error(weights, found, inputs) < 0.5 * error(weights, nearest(weights, largest), inputs)


def test_it_comes_close_to_the_best_of_all_roundings() -> None:
    """All ways to round five weights up or down are tried."""
    ratios = []
    for seed in range(20):
        inputs = correlated(5, seed)
        weights = np.random.default_rng(100 + seed).normal(size=(1, 5))
        found = rounded(weights, moments(inputs), 7)
        down = np.floor(weights / found.scales[:, None])
        centred = inputs - inputs.mean(axis=0)
        best = min(
            float(((((down + up) * found.scales[:, None] - weights) @ centred.T) ** 2).mean())
            for up in map(np.array, product((0, 1), repeat=5))
        )
        ratios.append(error(weights, found, inputs) / best)
    assert np.median(ratios) < 1.6


def test_the_bias_takes_the_mean_of_the_error() -> None:
    inputs, weights = correlated(12, 3), np.random.default_rng(4).normal(size=(3, 12))
    found = rounded(weights, moments(inputs), 7)
    change = (found.weights - weights) @ inputs.mean(axis=0).astype(np.float64) + found.bias
    np.testing.assert_allclose(change, 0, atol=1e-5)
    assert np.abs(found.bias).max() > 1e-3


def test_a_layer_without_a_bias_gets_none() -> None:
    inputs, weights = correlated(12, 3), np.random.default_rng(4).normal(size=(3, 12))
    found = rounded(weights, moments(inputs, centred=False), 7)
    assert (found.bias == 0).all()
    assert error(weights, found, inputs) < error(weights, nearest(weights, 7), inputs)


def test_channels_that_are_always_0_and_rows_of_zeros_are_no_trouble() -> None:
    inputs, weights = correlated(6, 5), np.random.default_rng(6).normal(size=(3, 6))
    inputs[:, 2], weights[1] = 0, 0
    found = rounded(weights, moments(inputs), 127)
    assert np.isfinite(found.weights).all()
    assert (found.weights[1] == 0).all()


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((4, 3, 1, 1), {}),
        ((2, 5, 3, 2), {"pads": [0, 1, 2, 0]}),
    ],
)
def test_a_convolutions_inputs_times_its_weights_are_onnxruntimes_outputs(
    tmp_path: Path, shape: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    kernel = np.random.default_rng(7).normal(size=shape).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", **attributes)
    top, left, bottom, right = attributes.get("pads", [0] * 4)
    output = Tensor("y", (shape[0], 10 + top + bottom - shape[2], 9 + left + right - shape[3]))
    write_graph(tmp_path / "c.onnx", [node], [Tensor("x", (shape[1], 9, 8))], [output], {"w": kernel})
    x = np.random.default_rng(8).normal(size=(2, shape[1], 9, 8)).astype(np.float32)
    network = LayeredNetwork(tmp_path / "c.onnx", "y", {"x": x})
    (layer,) = network.layers
    (expected,) = OnnxSession(tmp_path / "c.onnx", 1).run({"x": x}, ["y"])
    weights = network.constants[layer.weight]
    got = layer.inputs(x, weights.shape) @ layer.matrix(weights).T
    batch, outputs, height, width = expected.shape
    np.testing.assert_allclose(got.reshape(batch, height, width, outputs).transpose(0, 3, 1, 2), expected, atol=1e-4)
    assert network.multiplications == {"conv": height * width * weights.size}
