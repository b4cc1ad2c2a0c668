"""An ONNX network's layers that can be 8-bit integers, and what calibration sees go through them."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnxruntime.quantization.shape_inference import quant_pre_process

from movemask.errors import ContractError
from movemask.network.model import Array
from movemask.network.onnx import OnnxSession
from movemask.numeric.ragged import Float

#: Layers with a smaller share of the multiplications stay in float: converting would cost more than it saves.
LEAST_SHARE = 0.01

_INTEGERS = {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"}


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution or matrix product with constant weights, by the names of its node and tensors."""

    node: onnx.NodeProto
    weight: str
    bias: str | None

    @property
    def name(self) -> str:
        return str(self.node.name)

    @property
    def input(self) -> str:
        return str(self.node.input[0])

    @property
    def output(self) -> str:
        return str(self.node.output[0])

    @property
    def axis(self) -> int:
        """The axis of the weights that the outputs are counted along."""
        return 0 if self.node.op_type == "Conv" or _attributes(self.node).get("transB", 0) else 1

    def matrix(self, weights: Array) -> NDArray[np.float64]:
        """The weights as `[M, K]`, a row for each output."""
        flat = weights.reshape(len(weights), -1) if self.axis == 0 else weights.T
        return flat.astype(np.float64)

    def tensor(self, matrix: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float32]:
        """The inverse of `matrix`."""
        return np.ascontiguousarray(matrix.T if self.axis else matrix, dtype=np.float32).reshape(shape)

    def inputs(self, values: Array, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """What the rows of `matrix` are multiplied with, `[n, K]`: a row for each output position."""
        if self.node.op_type != "Conv":
            return np.ascontiguousarray(values.reshape(-1, values.shape[-1]), dtype=np.float32)
        top, left, bottom, right = _attributes(self.node).get("pads", [0, 0, 0, 0])
        around = np.pad(values, ((0, 0), (0, 0), (top, bottom), (left, right)))
        seen = np.lib.stride_tricks.sliding_window_view(around, shape[2:], axis=(2, 3))
        return np.ascontiguousarray(seen.transpose(0, 2, 3, 1, 4, 5), dtype=np.float32).reshape(
            -1, int(np.prod(shape[1:]))
        )


class LayeredNetwork:
    """A float network, prepared for quantising, with its layers on the way to the logits.

    Layers with a small share of the multiplications are left out; `feeds` is a batch to count them by.

    Raises ContractError if it holds integers already, or if there is nothing to quantise.
    """

    def __init__(self, file: Path, logits: str, feeds: Mapping[str, Array]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            prepared = Path(folder) / "prepared.onnx"
            try:
                quant_pre_process(str(file), str(prepared), skip_symbolic_shape=True)
            except Exception as error:  # onnxruntime's and onnx's share no base
                raise ContractError(f"{file.name}: cannot be prepared: {str(error).splitlines()[0][:300]}") from None
            self.model = onnx.load(str(prepared))
        graph = self.model.graph
        kinds = {node.op_type for node in graph.node}
        if kinds & _INTEGERS:
            raise ContractError(f"{file.name}: is quantised already: it has {', '.join(sorted(kinds & _INTEGERS))}")
        for number, node in enumerate(graph.node):
            node.name = node.name or f"{node.op_type}_{number}"
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self._uses = Counter(name for node in graph.node for name in node.input)
        self.inputs = [info.name for info in graph.input if info.name not in self.constants]
        layers = [layer for node in _leading_to(graph, logits) if (layer := self._layer(node)) is not None]
        if not layers:
            raise ContractError(f"{file.name}: has no convolution or matrix product with constant float weights")
        self.multiplications = self._counted(layers, feeds)
        total = sum(self.multiplications.values())
        self.layers = [layer for layer in layers if self.multiplications[layer.name] >= LEAST_SHARE * total]

    def _counted(self, layers: Sequence[Layer], feeds: Mapping[str, Array]) -> dict[str, int]:
        """Each layer's multiplications for one position."""
        (values,) = self.tensors([feeds], sorted({layer.output for layer in layers}))
        found = {}
        for layer in layers:
            weights, written = self.constants[layer.weight], values[layer.output]
            outputs = weights.shape[layer.axis]
            found[layer.name] = written.size // len(next(iter(feeds.values()))) * (weights.size // outputs)
        return found

    def shape(self, layer: Layer) -> tuple[int, ...]:
        """The shape of a layer's weights."""
        return tuple(self.constants[layer.weight].shape)

    def tensors(self, batches: Iterable[Mapping[str, Array]], names: list[str]) -> Iterable[dict[str, Array]]:
        """The values of these tensors for each batch of inputs."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        known = {output.name for output in model.graph.output}
        inner = [name for name in names if name not in self.inputs]
        model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in inner if name not in known)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "tensors.onnx"
            onnx.save(model, str(file))
            session = OnnxSession(file, 1)
        for feeds in batches:
            found = dict(zip(inner, session.run(feeds, inner), strict=True))
            yield found | {name: feeds[name] for name in names if name in self.inputs}

    def _layer(self, node: onnx.NodeProto) -> Layer | None:
        if node.op_type not in ("Conv", "MatMul", "Gemm") or node.input[1] not in self.constants:
            return None
        weights = self.constants[node.input[1]]
        attributes = _attributes(node)
        if weights.dtype != np.float32 or node.input[0] in self.constants:
            return None
        if node.op_type == "Conv":
            plain = (
                weights.ndim == 4
                and attributes.get("group", 1) == 1
                and attributes.get("auto_pad", b"NOTSET") == b"NOTSET"
                and {*attributes.get("strides", ()), *attributes.get("dilations", ())} <= {1}
            )
        else:
            plain = weights.ndim == 2 and not attributes.get("transA", 0)
            plain = plain and attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0
        if self._uses[node.input[1]] > 1:  # changing them would change another layer too
            return None
        bias = node.input[2] if len(node.input) > 2 and node.input[2] else None
        if not plain or (
            bias is not None and (bias not in self.constants or self.constants[bias].ndim != 1 or self._uses[bias] > 1)
        ):
            return None
        return Layer(node, node.input[1], bias)


def activated(graph: onnx.GraphProto) -> dict[str, str]:
    """For the output of a node that only a Relu reads, the Relu's output: onnxruntime joins the two."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    outputs = {info.name for info in graph.output}
    return {
        name: nodes[0].output[0]
        for name, nodes in readers.items()
        if len(nodes) == 1 and nodes[0].op_type == "Relu" and name not in outputs
    }


def _leading_to(graph: onnx.GraphProto, output: str) -> list[onnx.NodeProto]:
    """The nodes that an output depends on, in order: the judgement sees no others."""
    makers = {name: node for node in graph.node for name in node.output}
    wanted, waiting = set(), [output]
    while waiting:
        name = waiting.pop()
        if name in makers and name not in wanted:
            wanted.add(name)
            waiting += list(makers[name].input)
    return [node for node in graph.node if wanted & set(node.output)]


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


class Moments:
    """Mean `[K]` and covariance `[K, K]` of a layer's inputs, added up from parts.

    Not `centred`, for a layer without a bias to correct: the mean is 0 and the covariance is about 0.
    """

    def __init__(self, size: int, *, centred: bool = True) -> None:
        self._count, self._centred = 0, centred
        self._sum = np.zeros(size)
        self._products = np.zeros((size, size))

    def add(self, rows: NDArray[np.float32]) -> None:
        """Adds inputs `[n, K]`."""
        self._count += len(rows)
        self._sum += rows.sum(axis=0, dtype=np.float64)
        self._products += rows.T @ rows

    @property
    def mean(self) -> Float:
        return self._sum / self._count if self._centred else np.zeros_like(self._sum)

    @property
    def covariance(self) -> Float:
        return np.asarray(self._products / self._count - np.outer(self.mean, self.mean))


@dataclass(frozen=True)
class CalibrationStats:
    """What calibration saw.

    moments : of each layer's inputs
    ranges : the lowest and the highest value of each tensor, and 0
    whole : the tensors of whole numbers from 0 to 255
    """

    moments: Mapping[str, Moments]
    ranges: Mapping[str, tuple[float, float]]
    whole: frozenset[str]


def calibration_stats(network: LayeredNetwork, batches: Iterable[Mapping[str, Array]]) -> CalibrationStats:
    """What a network's layers see in batches of inputs."""
    after = activated(network.model.graph)
    layers = network.layers
    names = {layer.input for layer in layers} | {after.get(layer.output, layer.output) for layer in layers}
    moments = {
        layer.name: Moments(layer.matrix(network.constants[layer.weight]).shape[1], centred=layer.bias is not None)
        for layer in layers
    }
    ranges: dict[str, tuple[float, float]] = {}
    whole = set(names)
    for values in network.tensors(batches, sorted(names)):
        for name, value in values.items():
            low, high = ranges.get(name, (0.0, 0.0))
            ranges[name] = (min(low, float(value.min())), max(high, float(value.max())))
            if name in whole and not ((value == np.round(value)) & (value >= 0) & (value <= 255)).all():
                whole.discard(name)
        for layer in layers:
            moments[layer.name].add(layer.inputs(values[layer.input], network.shape(layer)))
    return CalibrationStats(moments, ranges, frozenset(whole))
