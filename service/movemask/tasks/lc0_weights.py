"""Reads lc0's weight files (`.pb.gz`) into arrays: four encodings of values, batch norms folded into convolutions.

Source: lc0's published format, `proto/net.proto` of LeelaChessZero/lczero-common: a gzipped `pblczero.Net`. Field
numbers are written where they are read. The arithmetic follows lc0: float32, the same order, fused multiply-adds; in
float64, logits differed from lc0's by up to 5e-4. Networks other than the classical 112-plane kind are refused with the
reason.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from movemask.errors import WeightsError
from movemask.network.files import FieldValue, fields

_EPSILON = 1e-5  # of every batch norm

Floats = NDArray[np.float32]


#: How the values of a layer are written; the numbers are net.proto's.
_LINEAR16, _FLOAT16, _BFLOAT16, _FLOAT32 = 1, 2, 3, 4


@dataclass(frozen=True)
class Convolution:
    """kernel `[O, I, K, K]`, bias `[O]`, its batch norm folded in."""

    kernel: Floats
    bias: Floats


@dataclass(frozen=True)
class Dense:
    """weight `[I, O]`, bias `[O]`."""

    weight: Floats
    bias: Floats


class Message:
    """A message's fields by number; `where` is its path in the file, for errors."""

    def __init__(self, raw: memoryview, where: str, encoding: int = 0) -> None:
        self.where = where
        self._encoding = encoding
        self._fields: dict[int, list[FieldValue]] = {}
        for number, value in fields(raw, where):
            self._fields.setdefault(number, []).append(value)

    def has(self, number: int) -> bool:
        return number in self._fields

    def number(self, number: int, default: int) -> int:
        value = self._fields.get(number, [default])[-1]
        if not isinstance(value, int):
            raise WeightsError(f"{self.where}: field {number} is not a number")
        return value

    def fixed32(self, number: int) -> int:
        value = self._fields.get(number, [0])[-1]
        return value if isinstance(value, int) else int.from_bytes(value, "little")

    def text(self, number: int) -> str:
        value = self._fields.get(number, [0])[-1]
        return "" if isinstance(value, int) else bytes(value).decode(errors="replace")

    def message(self, number: int, name: str, encoding: int = 0) -> Message:
        """The last message with this number; an empty one if there is none."""
        return (self.messages(number, name, encoding) or [Message(memoryview(b""), f"{self.where}: {name}")])[-1]

    def messages(self, number: int, name: str, encoding: int = 0) -> list[Message]:
        messages = []
        for index, value in enumerate(self._fields.get(number, [])):
            label = f"{name}[{index}]" if name == "residual" else name
            where = f"{self.where}.{label}" if ":" in self.where else f"{self.where}: {label}"
            if isinstance(value, int):
                raise WeightsError(f"{where}: is a number, not a message")
            messages.append(Message(value, where, encoding or self._encoding))
        return messages

    def layer(self, number: int, name: str) -> Floats | None:
        """The values of a layer, flat; None if it is missing or empty."""
        if not self.has(number):
            return None
        layer = self.message(number, name)
        raw = layer._fields.get(3, [memoryview(b"")])[-1]
        if isinstance(raw, int):
            raise WeightsError(f"{layer.where}: params is a number, not bytes")
        encoding = layer.number(4, 0) or self._encoding
        width = 4 if encoding == _FLOAT32 else 2
        if len(raw) % width:
            raise WeightsError(f"{layer.where}: {len(raw)} bytes are no whole number of values")
        if not len(raw):
            return None
        if encoding == _LINEAR16:
            low, high = (struct.unpack("<f", struct.pack("<I", layer.fixed32(place)))[0] for place in (1, 2))
            share = np.frombuffer(raw, "<u2").astype(np.float32) / np.float32(65535)
            values = _fused(share, np.float32(high) - np.float32(low), np.float32(low))
        elif encoding == _FLOAT16:
            values = np.frombuffer(raw, "<f2").astype(np.float32)
        elif encoding == _BFLOAT16:
            values = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
        elif encoding == _FLOAT32:
            values = np.frombuffer(raw, "<f4")
        else:
            raise WeightsError(f"{layer.where}: encoding {encoding} is not one that is read (1 to 4)")
        if not np.isfinite(values).all():
            raise WeightsError(f"{layer.where}: holds NaN or infinity")
        return values

    def convolution(self, inputs: int, size: int) -> Convolution:
        """A ConvBlock with its batch norm folded into kernel and bias; `inputs` planes, kernel `size`."""
        weights = self.layer(1, "weights")
        if weights is None or len(weights) % (inputs * size * size):
            count = 0 if weights is None else len(weights)
            raise WeightsError(f"{self.where}: {count} weights are no convolution of {inputs} planes, {size} x {size}")
        kernel = weights.reshape(-1, inputs, size, size)
        outputs = len(kernel)
        mean, variance = self._row(3, "bn_means", outputs, 0), self._row(4, "bn_stddivs", outputs, 1 - _EPSILON)
        gamma, beta = self._row(5, "bn_gammas", outputs, 1), self._row(6, "bn_betas", outputs, 0)
        if (variance < 0).any():
            raise WeightsError(f"{self.where}.bn_stddivs: a variance is negative")
        scale = gamma * (np.float32(1) / np.sqrt(variance + np.float32(_EPSILON)))
        bias = _fused(-scale, mean - self._row(2, "biases", outputs, 0), beta)
        return Convolution(kernel * scale[:, None, None, None], bias)

    def dense(self, weight: int, bias: int, name: str, inputs: int, outputs: int | None) -> Dense:
        """A dense layer, from the fields of its weights and biases."""
        weights, biases = self.layer(weight, f"{name}_w"), self.layer(bias, f"{name}_b")
        if weights is None or biases is None:
            raise WeightsError(f"{self.where}: {name} is missing")
        if outputs not in (None, len(biases)) or len(weights) != inputs * len(biases):
            wanted = "any" if outputs is None else outputs
            raise WeightsError(
                f"{self.where}: {name} holds {len(weights)} weights and {len(biases)} biases for {inputs} inputs and "
                f"{wanted} outputs"
            )
        matrix = weights.reshape(len(biases), inputs).T
        return Dense(np.ascontiguousarray(matrix), biases)

    def _row(self, number: int, name: str, size: int, default: float) -> Floats:
        values = self.layer(number, name)
        if values is None:
            return np.full(size, default, dtype=np.float32)
        if len(values) != size:
            raise WeightsError(f"{self.where}.{name}: {len(values)} values for {size} filters")
        return values


def _fused(a: Floats, b: Floats | np.float32, c: Floats | np.float32) -> Floats:
    """`a * b + c` with one rounding: the product of two float32 is exact in float64."""
    return (a.astype(np.float64) * np.float64(b) + np.float64(c)).astype(np.float32)


MAGIC = 0x1C0
LARGEST = 1 << 30  # bytes after decompression; lc0's largest published networks are well below


@dataclass(frozen=True)
class Block:
    """A residual block, with squeeze-and-excitation where the network has it."""

    first: Convolution
    second: Convolution
    squeeze: Dense | None
    excite: Dense | None


@dataclass(frozen=True)
class Lc0Network:
    """The layers of a classical network."""

    stem: Convolution
    blocks: tuple[Block, ...]
    policy_hidden: Convolution | None  # before the last convolution, of a convolutional head; None of a flat one
    policy_convolution: Convolution
    policy_dense: Dense | None  # of a flat head
    value_convolution: Convolution
    value_hidden: Dense
    value_out: Dense
    wdl: bool  # win, draw and loss, or one number
    mish: bool  # the activation function; ReLU otherwise
    licence: str

    @property
    def filters(self) -> int:
        return len(self.stem.bias)


def read_network(file: Path) -> Lc0Network:
    """The network in a `.pb.gz` or `.pb`. Raises WeightsError that names the file and the fault."""
    where = file.name
    return _network(memoryview(_unpacked(file, where)), where)


def _unpacked(file: Path, where: str) -> bytes:
    try:
        with open(file, "rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            network = (gzip.GzipFile(fileobj=raw) if zipped else raw).read(LARGEST + 1)
    except EOFError:
        raise WeightsError(f"{where}: cut off: the gzip stream has no end; download it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise WeightsError(f"{where}: damaged: {error}") from None
    except OSError as error:
        raise WeightsError(f"{where}: cannot be read: {error.strerror}") from None
    if len(network) > LARGEST:
        raise WeightsError(f"{where}: unpacks to more than {LARGEST >> 20} MiB; no lc0 network is so large")
    return network


def _network(message: memoryview, where: str) -> Lc0Network:
    net = Message(message, where)
    if net.fixed32(1) != MAGIC:
        raise WeightsError(f"{where}: not an lc0 weight file: its magic number is not {MAGIC:#x}")
    if net.has(11) and not net.has(10):
        raise WeightsError(f"{where}: holds an ONNX network; lc0 leela2onnx writes it out, then `models add`")
    form = net.message(4, "format").message(2, "network_format")
    default = net.message(4, "format").number(1, 0)
    _require("format.network_format.input", form.number(1, 1), {1: "classical 112 planes"}, where)
    structure = form.number(3, 1)
    names = {1: "classical", 2: "squeeze-and-excitation", 3: "classical", 4: "squeeze-and-excitation"}
    _require("format.network_format.network", structure, names, where)
    headed = structure in (3, 4)  # only these formats say which heads they have
    policy = form.number(4, 1) if headed else 1
    outcome = form.number(5, 1) if headed else 2 if form.number(2, 1) == 2 else 1
    _require("format.network_format.policy", policy, {1: "flat", 2: "convolution"}, where)
    _require("format.network_format.value", outcome, {1: "scalar", 2: "win, draw, loss"}, where)
    activation = form.number(7, 0)
    _require("format.network_format.default_activation", activation, {0: "relu", 1: "mish"}, where)
    weights = net.message(10, "weights", default)
    for number, name in ((21, "pol_encoder"), (27, "encoder"), (25, "ip_emb_w"), (35, "smolgen_w")):
        if weights.has(number):
            raise WeightsError(f"{where}: weights.{name}: attention bodies and heads are not read; use lc0 leela2onnx")
    stem = weights.message(1, "input").convolution(112, 3)
    filters = len(stem.bias)
    blocks = tuple(_block(block, filters) for block in weights.messages(2, "residual"))
    head = weights.message(3, "policy")
    if policy == 2:
        hidden = weights.message(11, "policy1").convolution(filters, 3)
        last, dense = head.convolution(len(hidden.bias), 3), None
        if len(last.bias) < 73:
            raise WeightsError(f"{where}: weights.policy has {len(last.bias)} planes; a move map needs 73 or more")
    else:
        hidden, last = None, head.convolution(filters, 1)
        dense = weights.dense(4, 5, "ip_pol", 64 * len(last.bias), 1858)
    value = weights.message(6, "value").convolution(filters, 1)
    inner = weights.dense(7, 8, "ip1_val", 64 * len(value.bias), None)
    outer = weights.dense(9, 10, "ip2_val", len(inner.bias), 3 if outcome == 2 else 1)
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
        net.text(2),
    )


def _block(block: Message, filters: int) -> Block:
    first = block.message(1, "conv1").convolution(filters, 3)
    second = block.message(2, "conv2").convolution(len(first.bias), 3)
    if len(second.bias) != filters:
        raise WeightsError(f"{block.where}.conv2 has {len(second.bias)} filters, the block's input {filters}")
    if not block.has(3):
        return Block(first, second, None, None)
    unit = block.message(3, "se")
    squeeze = unit.dense(1, 2, "w1", filters, None)
    return Block(first, second, squeeze, unit.dense(3, 4, "w2", len(squeeze.bias), 2 * filters))


def _require(name: str, found: int, known: dict[int, str], where: str) -> None:
    if found not in known:
        words = ", ".join(f"{number} ({word})" for number, word in known.items())
        raise WeightsError(f"{where}: {name} is {found}; read are {words}. lc0 leela2onnx converts the others")
