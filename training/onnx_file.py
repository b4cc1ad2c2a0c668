"""Network → ONNX."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.batches import Batch
from training.network import Network

INPUTS, OUTPUTS = ("planes", "elo_self", "elo_opponent"), ("logits", "value")


class Exported(nn.Module):
    """The network with the value as probabilities, so that the contract stays plain."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, planes: Tensor, elo_self: Tensor, elo_opponent: Tensor) -> tuple[Tensor, Tensor]:
        logits, value = self.network(planes, elo_self, elo_opponent)
        return logits, torch.softmax(value, 1)


def feeds_of(batch: Batch) -> dict[str, NDArray[np.float32]]:
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
