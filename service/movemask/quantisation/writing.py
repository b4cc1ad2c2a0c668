"""Rounds the weights of layers, and writes a network with some of them as 8-bit integers by onnxruntime's quantiser.

Weights are rounded so that a layer's outputs change least, not the weights themselves. Columns are rounded one after
the other, and the error of each is made up for by those still to come, as far as the layer's inputs are correlated.
Source: GPTQ, Frantar et al. (2022), arXiv:2210.17323, after Hassibi & Stork, "Second order derivatives for network
pruning" (1993). The mean of the error that is left goes into the bias: "bias correction", Nagel et al., "Data-free
quantization through weight equalization and bias correction" (2019), arXiv:1906.04721.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from movemask.network.model import Array
from movemask.numeric.ragged import Float
from movemask.quantisation.network import CalibrationStats, Layer, LayeredNetwork, Moments, activated

_DAMPING = 0.01  # of the mean variance, added to every input's: directions that calibration hardly saw stay put


@dataclass(frozen=True, slots=True)
class Rounded:
    """Weights `[M, K]` that are whole multiples of `scales` `[M]`, and what the bias `[M]` must be raised by."""

    weights: Float
    scales: Float
    bias: Float


def rounded(weights: Float, moments: Moments, largest: int) -> Rounded:
    """Weights `[M, K]` rounded to at most `largest` steps up and down, a scale for each row."""
    tops = np.abs(weights).max(axis=1)
    scales = np.where(tops > 0, tops, 1.0) / largest
    covariance = moments.covariance
    variances = np.diag(covariance)
    order = np.argsort(-variances)  # the inputs that matter most first, while most others can still make up for them
    damped = covariance + np.eye(len(covariance)) * (_DAMPING * variances.mean() + 1e-12)
    inverse = np.linalg.inv(damped[np.ix_(order, order)])
    factor = np.linalg.cholesky((inverse + inverse.T) / 2).T
    left = weights[:, order].astype(np.float64)
    found = np.empty_like(left)
    for column in range(left.shape[1]):
        found[:, column] = np.clip(np.round(left[:, column] / scales), -largest, largest) * scales
        error = (left[:, column] - found[:, column]) / factor[column, column]
        left[:, column:] -= np.outer(error, factor[column, column:])
    result = np.empty_like(found)
    result[:, order] = found
    return Rounded(result, scales, (weights - result) @ moments.mean)


_STEPS = 255  # of an activation's range


class Writer:
    """Writes variants of one network, whose layers are rounded once."""

    def __init__(
        self,
        network: LayeredNetwork,
        stats: CalibrationStats,
        rounded: Mapping[str, Rounded],
        feeds: Mapping[str, Array],
    ) -> None:
        self._network, self._stats, self._rounded = network, stats, rounded
        self._feeds = feeds
        self._after = activated(network.model.graph)

    def write(self, layers: Collection[Layer], file: Path) -> None:
        """Writes the network with these layers, at least one, as integers."""
        names = {layer.name for layer in layers}
        joined = {self._after[layer.output] for layer in layers if layer.output in self._after}
        relus = [node.name for node in self._network.model.graph.node if joined & set(node.output)]
        with tempfile.TemporaryDirectory() as folder, _quiet():
            plain = Path(folder) / "plain.onnx"
            onnx.save(self._with_rounded(layers), str(plain))
            quantize_static(
                str(plain),
                str(file),
                # Every range is given below; the quantiser asks for calibration data all the same.
                _Once(self._feeds),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                weight_type=QuantType.QInt8,
                activation_type=QuantType.QUInt8,
                op_types_to_quantize=["Conv", "MatMul", "Gemm", "Relu"],
                nodes_to_quantize=[*names, *relus],
                extra_options={"TensorQuantOverrides": self._overrides(layers)},
            )
        model = onnx.load(str(file))
        _keep_floats(model.graph, names, joined | {layer.output for layer in layers})
        onnx.save(model, str(file))

    def _with_rounded(self, layers: Collection[Layer]) -> onnx.ModelProto:
        model = onnx.ModelProto()
        model.CopyFrom(self._network.model)
        tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        for layer in layers:
            found = self._rounded[layer.name]
            weights = layer.tensor(found.weights, self._network.shape(layer))
            tensors[layer.weight].CopyFrom(numpy_helper.from_array(weights, layer.weight))
            if layer.bias is not None:
                bias = (self._network.constants[layer.bias] + found.bias).astype(np.float32)
                tensors[layer.bias].CopyFrom(numpy_helper.from_array(bias, layer.bias))
        return model

    def _overrides(self, layers: Collection[Layer]) -> dict[str, list[dict[str, Any]]]:
        """Scale and zero point of every tensor that becomes integers."""
        found: dict[str, list[dict[str, Any]]] = {}
        for layer in layers:
            found[layer.weight] = [
                {
                    "scale": np.array(scale, dtype=np.float32),
                    "zero_point": np.array(0, dtype=np.int8),
                    "quant_type": QuantType.QInt8,
                    "axis": layer.axis,
                }
                for scale in self._rounded[layer.name].scales
            ]
            for name in (layer.input, self._after.get(layer.output, layer.output)):
                scale, zero = self._scale(name)
                found[name] = [
                    {"scale": np.array(scale, dtype=np.float32), "zero_point": np.array(zero, dtype=np.uint8)}
                ]
        return found

    def _scale(self, name: str) -> tuple[float, int]:
        """Scale and zero point of an activation. Planes of whole numbers stay exactly what they are."""
        if name in self._stats.whole:
            return 1.0, 0
        low, high = self._stats.ranges[name]
        scale = (high - low) / _STEPS or 1.0
        return scale, round(-low / scale)


def _keep_floats(graph: onnx.GraphProto, layers: Collection[str], integers: Collection[str]) -> None:
    """Lets what stays in float read the float tensors: the quantiser gives it those that went through 8 bits, so that
    a residual stream would lose a little in every block."""
    makers = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        if node.name in layers or node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            continue
        for place, name in enumerate(node.input):
            maker = makers.get(name)
            if maker is None or maker.op_type != "DequantizeLinear" or maker.input[0] not in makers:
                continue
            original = makers[maker.input[0]].input[0]
            if original not in integers:
                node.input[place] = original


class _Once(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feeds: Mapping[str, Array]) -> None:
        self._parts: Iterator[Mapping[str, Array]] = iter([feeds])

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._parts, None)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the quantiser's warnings, which advise what has been done already."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
