"""Checkpoint → ONNX and contract: `python -m training.export RUN_FOLDER models/NAME`.

The Elo scaling and the value's softmax are inside the graph, so that the contract stays plain. The ONNX file's output
is compared with torch's on random positions before it is kept.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from service.inference.onnx import OnnxSession
from training.config import Run
from training.data import planes_of
from training.network import Network
from training.train import CHECKPOINT

TOLERANCE = 1e-3  # largest difference of a logit between torch and onnxruntime, both float32

CONTRACT = """\
# {name}: contract and card. docs/models.md says what each key means.

[network]
file = "{name}.onnx"
digest = "sha256:{digest}"

[contract]
planes = "movemask-18"
vocabulary = "movemask-1880"
trained_with_mask = false

[inputs]
planes = "planes"
elo_self = "elo_self"
elo_opponent = "elo_opponent"

[outputs]
logits = "logits"

[outputs.value]
name = "value"
softmaxed = true

[elo]
default = 1500
minimum = 800
maximum = 2500
scale = "lichess"

[card]
purpose = "The move that a human of a given lichess rating plays, from the position alone. A first, small network."
source = "trained by this project: training/README.md"
licence = "GPL-3.0-or-later"
date = {date}
data = "games from lichess (CC0 at their origin), rated and casual, no bullet; sources by name in training/README.md"
games = {games}
positions_seen = {positions}
architecture = "{blocks} residual blocks of {filters} filters, squeeze-and-excitation with ratings, from-to policy head"
parameters = {parameters}
hardware = "{hardware}"
limits = "Weak by design of its size and training time; knows no game history and no time control."
"""


class Exported(nn.Module):
    """The network with the value as probabilities."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, planes: Tensor, elo_self: Tensor, elo_opponent: Tensor) -> tuple[Tensor, Tensor]:
        logits, value = self.network(planes, elo_self, elo_opponent)
        return logits, torch.softmax(value, 1)


def export(run: Run, target: Path, games: int, hardware: str) -> None:
    state = torch.load(run.folder / CHECKPOINT, weights_only=True)
    network = Network(run.filters, run.blocks)
    network.load_state_dict(state["network"])
    exported = Exported(network).eval()
    sample = np.load(run.folder / "validation.npy", mmap_mode="r")[:64]
    inputs = (
        torch.from_numpy(planes_of(sample)),
        torch.from_numpy(sample["elo_self"].astype(np.float32)),
        torch.from_numpy(sample["elo_opponent"].astype(np.float32)),
    )
    names = ["planes", "elo_self", "elo_opponent"]
    file = target.with_suffix(".onnx")
    outputs = ["logits", "value"]
    axes = {name: {0: "batch"} for name in (*names, *outputs)}
    torch.onnx.export(
        exported, inputs, str(file), input_names=names, output_names=outputs, dynamic_axes=axes, dynamo=False
    )
    feeds = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
    found = OnnxSession(file, threads=2).run(feeds, outputs)
    with torch.no_grad():
        expected = [output.numpy() for output in exported(*inputs)]
    difference = max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))
    if not difference <= TOLERANCE:
        raise SystemExit(f"{file}: differs from torch by {difference}")
    print(f"{file}: within {difference:.2g} of torch, {file.stat().st_size / 1e6:.2f} MB")
    target.with_suffix(".toml").write_text(
        CONTRACT.format(
            name=target.name,
            digest=hashlib.sha256(file.read_bytes()).hexdigest(),
            date=datetime.date.today().isoformat(),
            games=games,
            positions=state["step"] * run.batch,
            blocks=run.blocks,
            filters=run.filters,
            parameters=sum(parameter.numel() for parameter in network.parameters()),
            hardware=hardware,
        )
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="checkpoint -> ONNX and contract")
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", type=Path, help="such as models/movemask-1")
    parser.add_argument("--games", type=int, required=True, help="games trained on, as training.data printed")
    parser.add_argument("--hardware", required=True, help="what it was trained on, and for how long")
    arguments = parser.parse_args()
    export(Run(arguments.folder), arguments.target, arguments.games, arguments.hardware)
