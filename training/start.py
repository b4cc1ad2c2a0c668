"""A network that begins with what a smaller one has learnt: more input planes, more filters or more blocks, and the
same answers at first.

What is new has weights of its own, but nothing that the smaller network had listens to it yet: weights from new planes,
filters and blocks to the rest begin at zero (Net2Net, Chen et al. 2016, arXiv:1511.05641).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from movemask.encoding.movemask_planes import PLANES
from training.network import Block, Network


@torch.no_grad()
def begin_with(network: Network, checkpoint: Path) -> None:
    """Sets the parameters of a tower to those of a checkpoint's; SystemExit where that one is larger."""
    known: dict[str, Tensor] = torch.load(checkpoint, map_location="cpu", weights_only=True)["network"]
    body = network.body
    smaller, width = len(known["body.stem_norm.weight"]), len(body.stem_norm.weight)
    planes = known["body.stem.weight"].shape[1] // 9
    depth = 1 + max(int(name.split(".")[2]) for name in known if name.startswith("body.blocks."))
    if smaller > width or depth > len(body.blocks):
        raise SystemExit(f"{checkpoint}: {depth} blocks of {smaller} filters are more than the run's network has")
    for name, own in network.state_dict().items():
        if name not in known:
            continue
        inputs = (planes, PLANES) if name == "body.stem.weight" else (smaller, width)
        rows = _places(len(known[name]), len(own), smaller, width) if own.ndim else ...
        if own.ndim < 2:
            own[rows] = known[name]
        else:
            own[rows] = 0.0
            own[rows[:, None], _places(known[name].shape[1], own.shape[1], *inputs)] = known[name]
    for block in list(body.blocks)[depth:]:
        assert isinstance(block, Block)
        for parameter in (block.second_norm.weight, *block.excitation.excite.parameters()):
            parameter.zero_()


def _places(size: int, own: int, smaller: int, larger: int) -> Tensor:
    """Where the `size` rows or columns of a smaller network are among the `own` ones of this.

    Both are made up of as many groups, of `smaller` and of `larger` entries, and the same rest behind them.
    """
    groups = (own - size) // max(larger - smaller, 1)
    grouped = larger * torch.arange(groups)[:, None] + torch.arange(smaller)
    rest = torch.arange(size - groups * smaller) + groups * larger
    return torch.cat([grouped.flatten(), rest])
