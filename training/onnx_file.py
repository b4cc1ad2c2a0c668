"""Network → ONNX, as floats and as 8-bit integers, and how long each takes."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor, nn

from training.batches import Batch
from training.network import Network

INPUTS, OUTPUTS = ("planes", "elo_self", "elo_opponent"), ("logits", "value")
CALIBRATION_BATCHES, CALIBRATION_BATCH = 32, 64

Feeds = dict[str, NDArray[np.float32]]


class Exported(nn.Module):
    """The network with the value as probabilities, so that the contract stays plain."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, planes: Tensor, elo_self: Tensor, elo_opponent: Tensor) -> tuple[Tensor, Tensor]:
        logits, value = self.network(planes, elo_self, elo_opponent)
        return logits, torch.softmax(value, 1)


def feeds_of(batch: Batch) -> Feeds:
    """A batch as the exported network takes it."""
    arrays = [tensor.contiguous().numpy() for tensor in batch.inputs()]
    return dict(zip(INPUTS, arrays, strict=True))


def write_floats(network: Network, sample: Batch, file: Path) -> None:
    """Writes float32; the first dimension of every input and output is free."""
    axes = {name: {0: "batch"} for name in (*INPUTS, *OUTPUTS)}
    inputs = tuple(torch.from_numpy(array) for array in feeds_of(sample).values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's exporter warns of its own successor
        torch.onnx.export(
            Exported(network).eval(),
            inputs,
            str(file),
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            dynamic_axes=axes,
            dynamo=False,
        )


def write_integers(floats: Path, calibration: Batch, file: Path) -> None:
    """Writes the convolutions as 8-bit integers, their ranges as `calibration` showed them; all but the first.

    For `training.compare`, which wants to know the cost of a network; what is shipped is made by `models quantize`.

    The first reads planes of zeros and ones and a clock, whose ranges have little in common: left in floats it gives
    back more than half of the accuracy that the others cost. Seven bits of range, so that processors whose 8-bit
    products saturate give the same numbers as the others.
    """
    prepared = file.with_suffix(".prepared")
    quant_pre_process(str(floats), str(prepared), skip_symbolic_shape=True)
    first = next(node.name for node in onnx.load(str(prepared)).graph.node if node.op_type == "Conv")
    quantize_static(
        str(prepared),
        str(file),
        _Reader(feeds_of(calibration)),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        reduce_range=True,
        weight_type=QuantType.QInt8,
        activation_type=QuantType.QUInt8,
        op_types_to_quantize=["Conv"],
        nodes_to_exclude=[first],
    )
    prepared.unlink()


def microseconds(files: dict[str, Path], feeds: dict[str, Feeds], rounds: int = 100) -> dict[str, float]:
    """Median microseconds a position on one thread, the files taken in turn so that all see the same machine."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    sessions = {
        name: ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        for name, file in files.items()
    }
    times: dict[str, list[float]] = {name: [] for name in files}
    for number in range(rounds + 5):
        for name, session in sessions.items():
            before = time.perf_counter()
            session.run(None, feeds[name])
            if number >= 5:
                times[name].append(time.perf_counter() - before)
    return {
        name: statistics.median(found) / len(next(iter(feeds[name].values()))) * 1e6 for name, found in times.items()
    }


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feeds: Feeds) -> None:
        self._parts = self._cut(feeds)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._parts, None)

    @staticmethod
    def _cut(feeds: Feeds) -> Iterator[Feeds]:
        for start in range(0, CALIBRATION_BATCHES * CALIBRATION_BATCH, CALIBRATION_BATCH):
            part = {name: array[start : start + CALIBRATION_BATCH] for name, array in feeds.items()}
            if len(part["planes"]):
                yield part
