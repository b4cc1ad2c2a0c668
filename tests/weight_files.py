"""lc0 weight files made here, field by field from the published format, with random weights."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def number(place: int, value: int) -> bytes:
    return varint(place << 3) + varint(value)


def fixed32(place: int, value: bytes) -> bytes:
    return varint(place << 3 | 5) + value


def message(place: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return varint(place << 3 | 2) + varint(len(body)) + body


@dataclass
class WeightFile:
    """A file's parts, and the float64 weights it holds by name, as a reader must get them back."""

    filters: int = 8
    blocks: int = 2
    squeezed: bool = True
    flat_policy: bool = False
    scalar_value: bool = False
    activation: int = 0
    encoding: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.arrays: dict[str, NDArray[np.float64]] = {}

    def layer(self, place: int, name: str, *shape: int, low: float = -0.2, high: float = 0.2) -> bytes:
        values = self.random.uniform(low, high, shape)
        flat = values.reshape(-1)
        if self.encoding == 1:
            least, most = np.float32(flat.min()), np.float32(flat.max())
            span = float(most) - float(least)
            packed = np.round((flat - float(least)) / (span or 1) * 65535).astype("<u2")
            self.arrays[name] = (packed / 65535 * span + float(least)).reshape(shape)
            ends = fixed32(1, struct.pack("<f", least)) + fixed32(2, struct.pack("<f", most))
            return message(place, ends, message(3, packed.tobytes()))
        kind = {2: "<f2", 4: "<f4"}.get(self.encoding)
        raw = flat.astype(kind) if kind else (flat.astype("<f4").view("<u4") >> 16).astype("<u2")
        array = raw.astype(np.float64) if kind else (raw.astype("<u4") << 16).view("<f4").astype(np.float64)
        self.arrays[name] = array.reshape(shape)
        return message(place, number(4, self.encoding), message(3, raw.tobytes()))

    def convolution(self, place: int, name: str, outputs: int, inputs: int, size: int) -> bytes:
        return message(
            place,
            self.layer(1, f"{name}.kernel", outputs, inputs, size, size),
            self.layer(3, f"{name}.mean", outputs),
            self.layer(4, f"{name}.variance", outputs, low=0.2, high=2.0),
            self.layer(5, f"{name}.gamma", outputs, low=0.5, high=1.5),
            self.layer(6, f"{name}.beta", outputs),
        )

    def block(self, name: str) -> bytes:
        f = self.filters
        parts = [self.convolution(1, f"{name}.conv1", f, f, 3), self.convolution(2, f"{name}.conv2", f, f, 3)]
        if self.squeezed:
            unit = [self.layer(1, f"{name}.w1", 4, f), self.layer(2, f"{name}.b1", 4)]
            unit += [self.layer(3, f"{name}.w2", 2 * f, 4), self.layer(4, f"{name}.b2", 2 * f)]
            parts.append(message(3, *unit))
        return message(2, *parts)

    def weights(self) -> bytes:
        f = self.filters
        parts = [self.convolution(1, "stem", f, 112, 3)]
        parts += [self.block(f"block{i}") for i in range(self.blocks)]
        if self.flat_policy:
            parts += [self.convolution(3, "policy", 4, f, 1), self.layer(4, "policy.w", 1858, 4 * 64)]
            parts.append(self.layer(5, "policy.b", 1858))
        else:
            parts += [self.convolution(11, "policy1", f, f, 3), self.convolution(3, "policy", 80, f, 3)]
        parts += [self.convolution(6, "value", 4, f, 1), self.layer(7, "value.w1", 16, 4 * 64)]
        outputs = 1 if self.scalar_value else 3
        parts += [self.layer(8, "value.b1", 16), self.layer(9, "value.w2", outputs, 16)]
        parts.append(self.layer(10, "value.b2", outputs))
        return b"".join(parts)

    def format(self, **changed: int) -> bytes:
        places = {"input": 1, "output": 2, "network": 3, "policy": 4, "value": 5, "moves_left": 6, "activation": 7}
        values = {
            "input": 1,
            "output": 1 if self.scalar_value else 2,
            "network": 4 if self.squeezed else 3,
            "policy": 1 if self.flat_policy else 2,
            "value": 1 if self.scalar_value else 2,
            "activation": self.activation,
            **changed,
        }
        inner = b"".join(number(places[name], value) for name, value in values.items())
        return message(4, number(1, self.encoding), message(2, inner))

    def head(self, **changed: int) -> bytes:
        magic = fixed32(1, (0x1C0).to_bytes(4, "little"))
        return magic + message(3, number(2, 21)) + self.format(**changed)

    def net(self, extra: bytes = b"", changed: Mapping[str, int] | None = None) -> bytes:
        return self.head(**(changed or {})) + message(10, self.weights(), extra)

    def write(
        self, folder: Path, name: str = "made.pb.gz", extra: bytes = b"", changed: Mapping[str, int] | None = None
    ) -> Path:
        file = folder / name
        file.write_bytes(gzip.compress(self.net(extra, changed)))
        return file
