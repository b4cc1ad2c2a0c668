"""`Session`: the protocol of an inference runtime, and `FakeSession`, a deterministic fake that ships."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Name, numpy dtype name and shape of an input or output; a free dimension (the batch) is None."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


class Session(Protocol):
    """Runs one network, from up to `at_once` threads at a time."""

    @property
    def at_once(self) -> int:
        """The best number of simultaneous runs."""
        ...

    @property
    def inputs(self) -> tuple[TensorInfo, ...]: ...

    @property
    def outputs(self) -> tuple[TensorInfo, ...]: ...

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs for a batch of inputs; raises InferenceFailed on an error of the runtime."""
        ...


class FakeSession:
    """Logits from a checksum of each position's inputs: no file, no runtime, the same on every machine.

    For trying a client or an installation. `scale` is the logits' standard deviation; with the default a policy is
    uneven, but no move is certain.
    """

    def __init__(self, inputs: Sequence[TensorInfo], logits: TensorInfo, scale: float = 2.0) -> None:
        self.inputs = tuple(inputs)
        self.outputs = (logits,)
        self.at_once = 1
        self._scale = scale

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        slots = self.outputs[0].shape[1]
        assert slots is not None
        columns = [np.ascontiguousarray(feeds[info.name]) for info in self.inputs]
        rows = []
        for row in range(len(columns[0])):
            seed = 0
            for column in columns:
                seed = zlib.crc32(column[row].tobytes(), seed)
            rows.append(np.random.default_rng(seed).standard_normal(slots) * self._scale)
        return [np.array(rows, dtype=np.float32).reshape(-1, slots) for _ in outputs]
