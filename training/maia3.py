"""The teacher: Maia-3 with 5 million parameters, its ONNX file read into the same module as the student.

Maia-3 (AGPL-3.0, github.com/CSSLab/maia3) takes eight positions and both ratings. It was trained with the mask, and
knows no castling rights and no en passant; the student learns from it over the legal moves alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from movemask.encoding.vocabularies import vocabulary
from training import config
from training.network import PIECES, RATING, Network

LICENCE = "AGPL-3.0"
SOURCE = "Maia-3 with 5 million parameters, UofTCSSLab/Maia3-5M, github.com/CSSLab/maia3"
SHAPE = config.Network(width=config.TEACHER_WIDTH, layers=8, heads=8, hidden=512, activation="gelu")
RATINGS = (600.0, 2600.0)  # seen in its training
OUR_KING = 5  # the plane of the newest position

_CASTLINGS = [
    (vocabulary("movemask-1880").names().index(a), vocabulary("movemask-1880").names().index(b))
    for a, b in (("e1h1", "e1g1"), ("e1a1", "e1c1"))
]  # as the student writes them, as the teacher does


@dataclass(frozen=True)
class Lesson:
    """What the teacher holds of `B` positions; a ready policy (`training.targets`) is a lesson of logits alone."""

    logits: Tensor  # float32 [B, A] in the student's slots; of illegal ones they mean nothing
    value: Tensor | None = None  # float32 [B, 3] win, draw, loss, logits
    states: list[Tensor] | None = None  # [B, 64, D] before its first layer and after each of its eight


class Teacher:
    """Maia-3 from its ONNX file, on a device, with products in bfloat16 if asked to."""

    def __init__(self, file: Path, device: str = "cpu", *, bfloat16: bool = False) -> None:
        self.network, self.bfloat16 = read(file).to(device).eval(), bfloat16

    @torch.no_grad()
    def lesson(self, tokens: Tensor, elo_self: Tensor, elo_opponent: Tensor, legal: Tensor) -> Lesson:
        """tokens `[B, 64, F]` of which it reads the pieces, Elo `[B]`, legal bool `[B, A]`."""
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=self.bfloat16):
            states = self.network.states(tokens, elo_self.clamp(*RATINGS), elo_opponent.clamp(*RATINGS))
            logits, value = self.network.head(states[-1])
        logits = logits.float()
        at_home = tokens[:, 4, PIECES - 12 + OUR_KING] > 0
        for ours, theirs in _CASTLINGS:  # king takes rook is legal for a king on e1 only where it castles
            castles = at_home & legal[:, ours]
            logits[:, ours] = torch.where(castles, logits[:, theirs], logits[:, ours])
        return Lesson(logits, value.float(), states)


def read(file: Path) -> Network:
    """The network of the ONNX file: logits equal to 2e-5, slots as the student writes them. Or of a `.pt` file, which
    `training.bundle` made of that."""
    if file.suffix == ".pt":
        network = Network(SHAPE)
        network.load_state_dict(torch.load(file, weights_only=True))
        return network
    graph = onnx.load(str(file)).graph
    known = {tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()) for tensor in graph.initializer}
    matrices = iter(
        known[node.input[1]].float().t()
        for node in graph.node
        if node.op_type == "MatMul" and node.input[1] in known and known[node.input[1]].ndim == 2
    )
    network = Network(SHAPE)
    largest, scale = float(known["val_3"]), float(known["val_545"])
    weights: dict[str, Tensor] = {"biases": known["transformer.layers.7.self_attn.gab_weight"]}
    embedding = next(matrices)  # [D, 96 + 128 + 128]: pieces, then a mix of two vectors for each rating
    low, high = known["elo_embedding_low.weight"].flatten(), known["elo_embedding_high.weight"].flatten()
    ratings = embedding[:, PIECES:].reshape(len(embedding), 2, -1)  # rating r is r / largest of low, the rest of high
    slope = ratings @ ((low - high) / largest)  # [D, 2]
    weights["tokens.weight"] = torch.nn.functional.pad(embedding[:, :PIECES], (0, network.tokens.in_features - PIECES))
    weights["tokens.bias"] = known["token_projection.bias"] + (ratings @ high + slope * 1.5 * RATING).sum(1)
    weights["ratings.weight"] = slope * RATING
    names = {"squeeze": "sm2", "squeeze_norm": "ln1", "excite": "sm3", "excite_norm": "ln2"}
    for number in range(SHAPE.layers):
        ours, theirs = f"layers.{number}.", f"transformer.layers.{number}."
        for name in ("attention", "out", "first", "second"):
            weights[f"{ours}{name}.weight"] = next(matrices)
        for mine, yours in (("first.bias", "linear1.bias"), ("second.bias", "linear2.bias")):
            weights[ours + mine] = known[theirs + yours]
        weights[f"{ours}attention_norm"] = known[f"{theirs}norm1.weight"]
        weights[f"{ours}hidden_norm"] = known[f"{theirs}norm2.weight"]
        for mine, yours in names.items():
            for kind in ("weight", "bias"):
                weights[f"{ours}{mine}.{kind}"] = known[f"{theirs}self_attn.{yours}.{kind}"]
    for mine, yours in (("norm", "transformer.norm"), ("board_norm", "last_ln"), ("hidden", "fc_value_hid")):
        for kind in ("weight", "bias"):
            weights[f"head.{mine}.{kind}"] = known[f"{yours}.{kind}"]
    order = torch.tensor([2, 1, 0])  # its value is loss, draw, win
    weights["head.value.weight"], weights["head.value.bias"] = (
        known[f"fc_value.{k}"][order] for k in ("weight", "bias")
    )
    weights["head.source.weight"], weights["head.target.weight"] = next(matrices), next(matrices)
    weights["head.promotion.weight"] = next(matrices) * scale
    weights["head.source.weight"] = weights["head.source.weight"] * (SHAPE.width**0.5 / scale)
    network.load_state_dict(weights)
    return network
