"""Network → ONNX, and how long a file takes."""

from __future__ import annotations

import statistics
import time
import warnings
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.batches import Batch
from training.network import Network

INPUTS, OUTPUTS = ("planes", "elo_self", "elo_opponent"), ("logits", "value")

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


def microseconds(files: dict[str, Path], feeds: dict[str, Feeds], rounds: int = 30) -> dict[str, float]:
    """Median CPU microseconds a position on one thread, the files taken in turn so that all see the same machine."""
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
            before = time.thread_time()
            session.run(None, feeds[name])
            if number >= 5:
                times[name].append(time.thread_time() - before)
    return {
        name: statistics.median(found) / len(next(iter(feeds[name].values()))) * 1e6 for name, found in times.items()
    }
