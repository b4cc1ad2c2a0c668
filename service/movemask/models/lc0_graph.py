"""A classical lc0 network → an ONNX graph, with the inputs and outputs that lc0's own export has.

`/input/planes` `[B, 112, 8, 8]` → `/output/policy` `[B, 1858]` logits, and `/output/wdl` `[B, 3]` as probabilities or
`/output/value` `[B, 1]` from -1 to 1. Source: the layers as lc0's `src/neural/backends/blas` runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from movemask.encoding.vocabularies import vocabulary
from movemask.models.lc0_weights import Block, Convolution, Dense, Lc0Network

PLANES, POLICY, WDL, VALUE = "/input/planes", "/output/policy", "/output/wdl", "/output/value"
OPSET, IR_VERSION = 17, 8
_DIRECTIONS = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1))  # (file, rank), clockwise from up
_JUMPS = ((1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2))
_PROMOTIONS = "rbq"


def graph(network: Lc0Network) -> onnx.ModelProto:
    """The network as an ONNX model, checked by `onnx.checker`."""
    builder = _Builder(network.mish)
    x = builder.convolution("/inputconv", PLANES, network.stem)
    x = builder.activated(x)
    for number, block in enumerate(network.blocks):
        x = _block(builder, f"/block{number}", x, block, network.filters)
    _policy(builder, network, x)
    outputs = [helper.make_tensor_value_info(POLICY, TensorProto.FLOAT, ["batch", 1858])]
    value = builder.activated(builder.convolution("/value/conv", x, network.value_convolution))
    flat = builder.node("Flatten", "/value/flatten", [value])
    hidden = builder.activated(builder.dense("/value/dense1", flat, network.value_hidden))
    out = builder.dense("/value/dense2", hidden, network.value_out)
    if network.wdl:
        builder.node("Softmax", WDL, [out], axis=1)
        outputs.append(helper.make_tensor_value_info(WDL, TensorProto.FLOAT, ["batch", 3]))
    else:
        builder.node("Tanh", VALUE, [out])
        outputs.append(helper.make_tensor_value_info(VALUE, TensorProto.FLOAT, ["batch", 1]))
    planes = helper.make_tensor_value_info(PLANES, TensorProto.FLOAT, ["batch", 112, 8, 8])
    body = helper.make_graph(builder.nodes, "lc0", [planes], outputs, builder.constants)
    model = helper.make_model(
        body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="movemask"
    )
    onnx.checker.check_model(model)
    return model


def move_map() -> NDArray[np.int32]:
    """For each of the 1858 slots its index in the output of a convolutional head, `plane * 64 + from-square`.

    Planes: eight directions clockwise from straight up, seven distances each; eight knight's jumps; then for a file to
    the left, straight up and to the right, promotion to rook, bishop and queen.
    """
    places = []
    for name in vocabulary("lc0-1858").names():
        file, rank, to_file, to_rank = (ord(name[0]) - 97, int(name[1]) - 1, ord(name[2]) - 97, int(name[3]) - 1)
        step = (to_file - file, to_rank - rank)
        if name[4:]:
            plane = 64 + 3 * (step[0] + 1) + _PROMOTIONS.index(name[4:])
        elif step in _JUMPS:
            plane = 56 + _JUMPS.index(step)
        else:
            distance = max(abs(step[0]), abs(step[1]))
            plane = 7 * _DIRECTIONS.index((step[0] // distance, step[1] // distance)) + distance - 1
        places.append(plane * 64 + rank * 8 + file)
    return np.array(places, dtype=np.int32)


def _block(builder: _Builder, name: str, x: str, block: Block, filters: int) -> str:
    y = builder.activated(builder.convolution(f"{name}/conv1", x, block.first))
    y = builder.convolution(f"{name}/conv2", y, block.second)
    if block.squeeze is not None and block.excite is not None:
        pooled = builder.node("GlobalAveragePool", f"{name}/se/pool", [y])
        squeezed = builder.dense(
            f"{name}/se/dense1", builder.node("Flatten", f"{name}/se/flatten", [pooled]), block.squeeze
        )
        both = builder.dense(f"{name}/se/dense2", builder.activated(squeezed), block.excite)
        shape = builder.constant("/const/se_shape", np.array([-1, 2 * filters, 1, 1], dtype=np.int64))
        shaped = builder.node("Reshape", f"{name}/se/reshape", [both, shape])
        builder.add("Split", f"{name}/se/split", [shaped], [f"{name}/se/scale", f"{name}/se/shift"], axis=1)
        gate = builder.node("Sigmoid", f"{name}/se/sigmoid", [f"{name}/se/scale"])
        scaled = builder.node("Mul", f"{name}/se/mul", [y, gate])
        y = builder.node("Add", f"{name}/se/add", [scaled, f"{name}/se/shift"])
    return builder.activated(builder.node("Add", f"{name}/mixin", [y, x]))


def _policy(builder: _Builder, network: Lc0Network, x: str) -> None:
    if network.policy_hidden is not None:
        hidden = builder.activated(builder.convolution("/policy/conv1", x, network.policy_hidden))
        planes = builder.convolution("/policy/conv2", hidden, network.policy_convolution)
        flat = builder.node("Flatten", "/policy/flatten", [planes])
        builder.node("Gather", POLICY, [flat, builder.constant("/const/move_map", move_map())], axis=1)
        return
    assert network.policy_dense is not None
    hidden = builder.activated(builder.convolution("/policy/conv", x, network.policy_convolution))
    builder.dense(POLICY, builder.node("Flatten", "/policy/flatten", [hidden]), network.policy_dense)


class _Builder:
    """Collects nodes and constants in order; each output has the name of its node."""

    def __init__(self, mish: bool) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._mish = mish

    def add(self, kind: str, name: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        self.nodes.append(helper.make_node(kind, list(inputs), list(outputs), name=name, **attributes))

    def node(self, kind: str, name: str, inputs: Sequence[str], **attributes: Any) -> str:
        self.add(kind, name, inputs, [name], **attributes)
        return name

    def constant(self, name: str, values: NDArray[np.generic]) -> str:
        if all(known.name != name for known in self.constants):
            self.constants.append(numpy_helper.from_array(values, name))
        return name

    def convolution(self, name: str, x: str, layer: Convolution) -> str:
        size = layer.kernel.shape[2]
        inputs = [x, self.constant(f"{name}/kernel", layer.kernel), self.constant(f"{name}/bias", layer.bias)]
        return self.node("Conv", name, inputs, kernel_shape=[size, size], pads=[size // 2] * 4)

    def dense(self, name: str, x: str, layer: Dense) -> str:
        product = self.node("MatMul", f"{name}/matmul", [x, self.constant(f"{name}/weight", layer.weight)])
        return self.node("Add", name, [product, self.constant(f"{name}/bias", layer.bias)])

    def activated(self, x: str) -> str:
        if not self._mish:
            return self.node("Relu", f"{x}/relu", [x])
        # mish: x * tanh(ln(1 + e^x)); ONNX has it as an operator only from opset 18
        bounded = self.node("Tanh", f"{x}/tanh", [self.node("Softplus", f"{x}/softplus", [x])])
        return self.node("Mul", f"{x}/mish", [x, bounded])
