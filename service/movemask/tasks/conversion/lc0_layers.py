"""Reads the layers of an lc0 weight file: four encodings of values, batch norms folded into convolutions.

Source: lc0's published format, `proto/net.proto` of LeelaChessZero/lczero-common. The arithmetic follows lc0: float32,
the same order, fused multiply-adds. In float64, logits differed from lc0's by up to 5e-4.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from movemask.errors import WeightsError
from movemask.network.files import Value, fields

_EPSILON = 1e-5  # of every batch norm

Floats = NDArray[np.float32]


class Encoding(IntEnum):
    UNKNOWN = 0
    LINEAR16 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    FLOAT32 = 4


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

    def __init__(self, raw: memoryview, where: str, encoding: Encoding | None = None) -> None:
        self.where = where
        self._encoding = encoding
        self._fields: dict[int, list[Value]] = {}
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
        value = self._fields.get(number, [memoryview(b"")])[-1]
        return "" if isinstance(value, int) else bytes(value).decode(errors="replace")

    def message(self, number: int, name: str, encoding: Encoding | None = None) -> Message:
        """The last message with this number; an empty one if there is none."""
        return (self.messages(number, name, encoding) or [Message(memoryview(b""), f"{self.where}: {name}")])[-1]

    def messages(self, number: int, name: str, encoding: Encoding | None = None) -> list[Message]:
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
        encoding = layer.number(4, 0) or (self._encoding or 0)
        width = 4 if encoding == Encoding.FLOAT32 else 2
        if len(raw) % width:
            raise WeightsError(f"{layer.where}: {len(raw)} bytes are no whole number of values")
        if not len(raw):
            return None
        if encoding == Encoding.LINEAR16:
            low, high = (struct.unpack("<f", struct.pack("<I", layer.fixed32(place)))[0] for place in (1, 2))
            share = np.frombuffer(raw, "<u2").astype(np.float32) / np.float32(65535)
            values = _fused(share, np.float32(high) - np.float32(low), np.float32(low))
        elif encoding == Encoding.FLOAT16:
            values = np.frombuffer(raw, "<f2").astype(np.float32)
        elif encoding == Encoding.BFLOAT16:
            values = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
        elif encoding == Encoding.FLOAT32:
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
