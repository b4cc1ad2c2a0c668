"""Reads lc0's weight files (`.pb.gz`) and makes ONNX graphs with the inputs and outputs of lc0's own export.

Values come in four encodings. Batch norms are folded into convolutions. Source: lc0's published format,
`proto/net.proto` of LeelaChessZero/lczero-common: a gzipped `pblczero.Net`. The arithmetic follows lc0: float32, the
same order, fused multiply-adds; in float64, logits differed from lc0's by up to 5e-4. Networks other than the classical
112-plane design are refused with the reason.

`/input/planes` `[B, 112, 8, 8]` → `/output/policy` `[B, 1858]` logits, and `/output/wdl` `[B, 3]` as probabilities or
`/output/value` `[B, 1]` from -1 to 1. Source: the layers as lc0's `src/neural/backends/blas` runs them.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from movemask.encoding.vocabularies import vocabulary
from movemask.errors import WeightsError
from movemask.network.files import read_regular
from movemask.signatures import LC0, described

#: The part of net.proto that is read: messages with their fields' numbers, types and names, `*` for repeated fields,
#: and defaults. Enums are numbers. Fields whose presence alone matters are bytes.
_PROTO = """\
Layer: 1 float min_val, 2 float max_val, 3 bytes params, 4 uint32 encoding
ConvBlock: 1 Layer weights, 2 Layer biases, 3 Layer bn_means, 4 Layer bn_stddivs, 5 Layer bn_gammas, 6 Layer bn_betas
SEunit: 1 Layer w1, 2 Layer b1, 3 Layer w2, 4 Layer b2
Residual: 1 ConvBlock conv1, 2 ConvBlock conv2, 3 SEunit se
Weights: 1 ConvBlock input, 2 Residual* residual, 3 ConvBlock policy, 4 Layer ip_pol_w, 5 Layer ip_pol_b, \
6 ConvBlock value, 7 Layer ip1_val_w, 8 Layer ip1_val_b, 9 Layer ip2_val_w, 10 Layer ip2_val_b, \
11 ConvBlock policy1, 21 bytes* pol_encoder, 25 bytes* ip_emb_w, 27 bytes* encoder, 35 bytes* smolgen_w
NetworkFormat: 1 uint32 input=1, 2 uint32 output=1, 3 uint32 network=1, 4 uint32 policy=1, 5 uint32 value=1, \
7 uint32 default_activation
Format: 1 uint32 weights_encoding, 2 NetworkFormat network_format
Net: 1 fixed32 magic, 2 bytes license, 4 Format format, 10 Weights weights, 11 bytes* onnx_model"""

_EPSILON = 1e-5  # of every batch norm

Floats = NDArray[np.float32]


#: The encodings of a layer's values, by net.proto's numbers.
_LINEAR16, _FLOAT16, _BFLOAT16, _FLOAT32 = 1, 2, 3, 4


@dataclass(frozen=True)
class Convolution:
    """Kernel `[O, I, K, K]` and bias `[O]`, with the batch norm folded in."""

    kernel: Floats
    bias: Floats


@dataclass(frozen=True)
class Dense:
    """Weight `[I, O]` and bias `[O]`."""

    weight: Floats
    bias: Floats


@dataclass(frozen=True)
class _Message:
    """A message of the file, its path for errors, and the encoding of layers that name none."""

    message: Any
    where: str
    encoding: int

    def part(self, name: str) -> _Message:
        return _Message(getattr(self.message, name), f"{self.where}.{name}", self.encoding)

    def layer(self, name: str) -> Floats | None:
        """Returns the values of a layer, flat; None if it is missing or empty."""
        layer, where = getattr(self.message, name), f"{self.where}.{name}"
        encoding = layer.encoding or self.encoding
        width = 4 if encoding == _FLOAT32 else 2
        if len(layer.params) % width:
            raise WeightsError(
                f"{where}: {len(layer.params)} bytes are not a whole number of values"
            )
        if not layer.params:
            return None
        if encoding == _LINEAR16:
            low, high = np.float32(layer.min_val), np.float32(layer.max_val)
            share = np.frombuffer(layer.params, "<u2").astype(np.float32) / np.float32(65535)
            values = _fused(share, high - low, low)
        elif encoding == _FLOAT16:
            values = np.frombuffer(layer.params, "<f2").astype(np.float32)
        elif encoding == _BFLOAT16:
            values = (np.frombuffer(layer.params, "<u2").astype("<u4") << 16).view("<f4")
        elif encoding == _FLOAT32:
            values = np.frombuffer(layer.params, "<f4")
        else:
            raise WeightsError(f"{where}: encoding {encoding} is not supported (1 to 4 are)")
        if not np.isfinite(values).all():
            raise WeightsError(f"{where}: holds NaN or infinity")
        return values

    def convolution(self, inputs: int, size: int) -> Convolution:
        """Returns a ConvBlock with its batch norm folded into kernel and bias; `inputs` planes, kernel `size`."""
        weights = self.layer("weights")
        if weights is None or len(weights) % (inputs * size * size):
            count = 0 if weights is None else len(weights)
            raise WeightsError(
                f"{self.where}: {count} weights do not fit a convolution of {inputs} planes, {size} x {size}"
            )
        kernel = weights.reshape(-1, inputs, size, size)
        outputs = len(kernel)
        mean = self._row("bn_means", outputs, 0)
        variance = self._row("bn_stddivs", outputs, 1 - _EPSILON)
        gamma, beta = self._row("bn_gammas", outputs, 1), self._row("bn_betas", outputs, 0)
        if (variance < 0).any():
            raise WeightsError(f"{self.where}.bn_stddivs: a variance is negative")
        deviation: Floats = np.sqrt(variance + np.float32(_EPSILON))
        scale = gamma * (np.float32(1) / deviation)
        bias = _fused(-scale, mean - self._row("biases", outputs, 0), beta)
        return Convolution(kernel * scale[:, None, None, None], bias)

    def dense(self, weight: str, bias: str, inputs: int, outputs: int | None) -> Dense:
        """Returns a dense layer, from the names of its weights and biases."""
        weights, biases = self.layer(weight), self.layer(bias)
        if weights is None or biases is None:
            raise WeightsError(f"{self.where}: {weight} or {bias} is missing")
        if outputs not in (None, len(biases)) or len(weights) != inputs * len(biases):
            expected = "any" if outputs is None else outputs
            raise WeightsError(
                f"{self.where}: {weight} holds {len(weights)} weights and {bias} {len(biases)} biases for {inputs} "
                f"inputs and {expected} outputs"
            )
        matrix = weights.reshape(len(biases), inputs).T
        return Dense(np.ascontiguousarray(matrix), biases)

    def _row(self, name: str, size: int, default: float) -> Floats:
        values = self.layer(name)
        if values is None:
            return np.full(size, default, dtype=np.float32)
        if len(values) != size:
            raise WeightsError(f"{self.where}.{name}: {len(values)} values for {size} filters")
        return values


@cache
def _net() -> type[Any]:
    """Returns the protobuf class of a whole file."""
    file = FileDescriptorProto(name="net.proto", package="lc0")
    for line in _PROTO.splitlines():
        name, _, fields = line.partition(": ")
        message = file.message_type.add(name=name)
        for number, field_type, field in map(str.split, fields.split(", ")):
            base, mark, _ = field_type.partition("*")
            field_name, _, default = field.partition("=")
            label = (
                FieldDescriptorProto.LABEL_REPEATED if mark else FieldDescriptorProto.LABEL_OPTIONAL
            )
            added = message.field.add(
                name=field_name, number=int(number), label=label, default_value=default or None
            )
            if base[0].isupper():
                added.type_name = f".lc0.{base}"
            else:
                added.type = FieldDescriptorProto.Type.Value(f"TYPE_{base.upper()}")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    net_class: type[Any] = GetMessageClass(pool.FindMessageTypeByName("lc0.Net"))
    return net_class


def _fused(a: Floats, b: Floats | np.float32, c: Floats | np.float32) -> Floats:
    """Returns `a * b + c`.

    The product is exact in float64. The sum is rounded to float64, then to float32.
    """
    return (a.astype(np.float64) * np.float64(b) + np.float64(c)).astype(np.float32)


MAGIC = 0x1C0
# bytes after decompression; lc0's largest published networks are well below
MAX_UNPACKED_BYTES = 1 << 30


@dataclass(frozen=True)
class Block:
    """A residual block. Squeeze-and-excitation is None where the network has none."""

    first: Convolution
    second: Convolution
    squeeze: Dense | None
    excite: Dense | None


@dataclass(frozen=True)
class Lc0Network:
    """The layers of a classical network."""

    stem: Convolution
    blocks: tuple[Block, ...]
    # before the last convolution of a convolutional head; None for a flat head
    policy_hidden: Convolution | None
    policy_convolution: Convolution
    policy_dense: Dense | None  # None for a convolutional head
    value_convolution: Convolution
    value_hidden: Dense
    value_out: Dense
    wdl: bool  # the value is win, draw and loss; otherwise one number
    mish: bool  # the activation function; ReLU otherwise
    licence: str

    @property
    def filters(self) -> int:
        return len(self.stem.bias)


def read_network(file: Path) -> Lc0Network:
    """Returns the network in a `.pb.gz` or `.pb`. Raises WeightsError, which names the file and the fault."""
    where = file.name
    try:
        start = read_regular(file, MAX_UNPACKED_BYTES)
    except OSError as error:
        raise WeightsError(f"{where}: cannot be read: {error.strerror}") from None
    if not start:
        raise WeightsError(f"{where}: it is empty; download it again")
    if description := described(start, LC0):
        raise WeightsError(f"{where}: {description}")
    return _network(_unpacked(file, where), where)


def _unpacked(file: Path, where: str) -> bytes:
    try:
        with open(file, "rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            network = (gzip.GzipFile(fileobj=raw) if zipped else raw).read(MAX_UNPACKED_BYTES + 1)
    except EOFError:
        raise WeightsError(
            f"{where}: cut off: the gzip stream has no end; download it again"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise WeightsError(f"{where}: damaged: {error}") from None
    except OSError as error:
        raise WeightsError(f"{where}: cannot be read: {error.strerror}") from None
    if len(network) > MAX_UNPACKED_BYTES:
        raise WeightsError(
            f"{where}: unpacks to more than {MAX_UNPACKED_BYTES >> 20} MiB; no lc0 network is so large"
        )
    return network


def _network(raw: bytes, where: str) -> Lc0Network:
    try:
        net = _net().FromString(raw)
    except DecodeError:
        raise WeightsError(f"{where}: cut off, damaged or not an lc0 weight file") from None
    if net.magic != MAGIC:
        raise WeightsError(f"{where}: not an lc0 weight file: its magic number is not {MAGIC:#x}")
    if net.onnx_model and not net.HasField("weights"):
        raise WeightsError(
            f"{where}: contains an ONNX network; extract it with lc0 leela2onnx, then use `models add`"
        )
    form = net.format.network_format
    _require("input", form.input, {1: "classical 112 planes"}, where)
    structure = form.network
    names = {
        1: "classical",
        2: "squeeze-and-excitation",
        3: "classical",
        4: "squeeze-and-excitation",
    }
    _require("network", structure, names, where)
    headed = structure in (3, 4)  # only these formats declare their heads
    policy = form.policy if headed else 1
    outcome = form.value if headed else 2 if form.output == 2 else 1
    _require("policy", policy, {1: "flat", 2: "convolution"}, where)
    _require("value", outcome, {1: "scalar", 2: "win, draw, loss"}, where)
    activation = form.default_activation
    _require("default_activation", activation, {0: "relu", 1: "mish"}, where)
    weights = _Message(net.weights, f"{where}: weights", net.format.weights_encoding)
    for name in ("pol_encoder", "encoder", "ip_emb_w", "smolgen_w"):
        if getattr(net.weights, name):
            raise WeightsError(
                f"{where}: weights.{name}: attention bodies and heads are not supported; use lc0 leela2onnx"
            )
    stem = weights.part("input").convolution(112, 3)
    filters = len(stem.bias)
    blocks = tuple(
        _block(_Message(block, f"{weights.where}.residual[{number}]", weights.encoding), filters)
        for number, block in enumerate(net.weights.residual)
    )
    head = weights.part("policy")
    if policy == 2:
        hidden = weights.part("policy1").convolution(filters, 3)
        last, dense = head.convolution(len(hidden.bias), 3), None
        if len(last.bias) < 73:
            raise WeightsError(
                f"{where}: weights.policy has {len(last.bias)} planes; a move map needs 73 or more"
            )
    else:
        hidden, last = None, head.convolution(filters, 1)
        dense = weights.dense("ip_pol_w", "ip_pol_b", 64 * len(last.bias), 1858)
    value = weights.part("value").convolution(filters, 1)
    inner = weights.dense("ip1_val_w", "ip1_val_b", 64 * len(value.bias), None)
    outer = weights.dense("ip2_val_w", "ip2_val_b", len(inner.bias), 3 if outcome == 2 else 1)
    licence = net.license.decode(errors="replace")
    return Lc0Network(
        stem,
        blocks,
        hidden,
        last,
        dense,
        value,
        inner,
        outer,
        outcome == 2,
        activation == 1,
        licence,
    )


def _block(block: _Message, filters: int) -> Block:
    first = block.part("conv1").convolution(filters, 3)
    second = block.part("conv2").convolution(len(first.bias), 3)
    if len(second.bias) != filters:
        raise WeightsError(
            f"{block.where}.conv2 has {len(second.bias)} filters, the block's input {filters}"
        )
    if not block.message.HasField("se"):
        return Block(first, second, None, None)
    unit = block.part("se")
    squeeze = unit.dense("w1", "b1", filters, None)
    return Block(first, second, squeeze, unit.dense("w2", "b2", len(squeeze.bias), 2 * filters))


def _require(name: str, number: int, known: dict[int, str], where: str) -> None:
    if number not in known:
        words = ", ".join(f"{supported} ({word})" for supported, word in known.items())
        raise WeightsError(
            f"{where}: format.network_format.{name} is {number}; supported: {words}. lc0 leela2onnx converts the others"
        )


PLANES, POLICY, WDL, VALUE = "/input/planes", "/output/policy", "/output/wdl", "/output/value"
OPSET, IR_VERSION = 17, 8
# (file, rank), clockwise from up
_DIRECTIONS = (
    (0, 1),
    (1, 1),
    (1, 0),
    (1, -1),
    (0, -1),
    (-1, -1),
    (-1, 0),
    (-1, 1),
)
_JUMPS = ((1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2))
_PROMOTIONS = "rbq"


def graph(network: Lc0Network) -> onnx.ModelProto:
    """Returns the network as an ONNX model, checked by `onnx.checker`."""
    builder = _Builder(network.mish)
    x = builder.convolution("/inputconv", PLANES, network.stem)
    x = builder.activated(x)
    for number, block in enumerate(network.blocks):
        x = _add_block(builder, f"/block{number}", x, block, network.filters)
    _add_policy(builder, network, x)
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
        body,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="movemask",
    )
    onnx.checker.check_model(model)
    return model


def move_map() -> NDArray[np.int32]:
    """Returns for each of the 1858 slots its index in the output of a convolutional head.

    The index is `plane * 64 + from-square`.

    Planes: eight directions clockwise from straight up, with seven distances each; eight knight's
    jumps; promotions to the left, straight up and to the right, each to rook, bishop and queen.
    """
    places = []
    for name in vocabulary("lc0-1858").names():
        file = ord(name[0]) - 97
        rank = int(name[1]) - 1
        to_file = ord(name[2]) - 97
        to_rank = int(name[3]) - 1
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


def _add_block(builder: _Builder, name: str, x: str, block: Block, filters: int) -> str:
    y = builder.activated(builder.convolution(f"{name}/conv1", x, block.first))
    y = builder.convolution(f"{name}/conv2", y, block.second)
    if block.squeeze is not None and block.excite is not None:
        pooled = builder.node("GlobalAveragePool", f"{name}/se/pool", [y])
        squeezed = builder.dense(
            f"{name}/se/dense1",
            builder.node("Flatten", f"{name}/se/flatten", [pooled]),
            block.squeeze,
        )
        both = builder.dense(f"{name}/se/dense2", builder.activated(squeezed), block.excite)
        shape = builder.constant(
            "/const/se_shape", np.array([-1, 2 * filters, 1, 1], dtype=np.int64)
        )
        shaped = builder.node("Reshape", f"{name}/se/reshape", [both, shape])
        builder.add(
            "Split", f"{name}/se/split", [shaped], [f"{name}/se/scale", f"{name}/se/shift"], axis=1
        )
        gate = builder.node("Sigmoid", f"{name}/se/sigmoid", [f"{name}/se/scale"])
        scaled = builder.node("Mul", f"{name}/se/mul", [y, gate])
        y = builder.node("Add", f"{name}/se/add", [scaled, f"{name}/se/shift"])
    return builder.activated(builder.node("Add", f"{name}/mixin", [y, x]))


def _add_policy(builder: _Builder, network: Lc0Network, x: str) -> None:
    if network.policy_hidden is not None:
        hidden = builder.activated(builder.convolution("/policy/conv1", x, network.policy_hidden))
        planes = builder.convolution("/policy/conv2", hidden, network.policy_convolution)
        flat = builder.node("Flatten", "/policy/flatten", [planes])
        builder.node(
            "Gather", POLICY, [flat, builder.constant("/const/move_map", move_map())], axis=1
        )
        return
    assert network.policy_dense is not None
    hidden = builder.activated(builder.convolution("/policy/conv", x, network.policy_convolution))
    builder.dense(
        POLICY, builder.node("Flatten", "/policy/flatten", [hidden]), network.policy_dense
    )


class _Builder:
    """Collects nodes and constants in order. Each output has the name of its node."""

    def __init__(self, mish: bool) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._mish = mish

    def add(
        self,
        operator: str,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        **attributes: Any,
    ) -> None:
        self.nodes.append(
            helper.make_node(operator, list(inputs), list(outputs), name=name, **attributes)
        )

    def node(self, operator: str, name: str, inputs: Sequence[str], **attributes: Any) -> str:
        self.add(operator, name, inputs, [name], **attributes)
        return name

    def constant(self, name: str, values: NDArray[np.generic]) -> str:
        if all(known.name != name for known in self.constants):
            self.constants.append(numpy_helper.from_array(values, name))
        return name

    def convolution(self, name: str, x: str, layer: Convolution) -> str:
        size = layer.kernel.shape[2]
        inputs = [
            x,
            self.constant(f"{name}/kernel", layer.kernel),
            self.constant(f"{name}/bias", layer.bias),
        ]
        return self.node("Conv", name, inputs, kernel_shape=[size, size], pads=[size // 2] * 4)

    def dense(self, name: str, x: str, layer: Dense) -> str:
        product = self.node(
            "MatMul", f"{name}/matmul", [x, self.constant(f"{name}/weight", layer.weight)]
        )
        return self.node("Add", name, [product, self.constant(f"{name}/bias", layer.bias)])

    def activated(self, x: str) -> str:
        if not self._mish:
            return self.node("Relu", f"{x}/relu", [x])
        # mish: x * tanh(ln(1 + e^x)). ONNX has it as an operator only from opset 18.
        bounded = self.node("Tanh", f"{x}/tanh", [self.node("Softplus", f"{x}/softplus", [x])])
        return self.node("Mul", f"{x}/mish", [x, bounded])
