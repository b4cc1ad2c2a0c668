"""A network that begins where an older one of ours ended: its float export, read back into the network's parameters.

A deeper network begins with the same answers: the blocks that the older one has not are added behind and pass on what
they are given, until they have learnt better.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from training.network import Block, Network, Tower

HEADS = ("source", "target", "promotion")  # linear layers that the export keeps as the second factor of a product


def begin_with(network: Network, export: Path) -> None:
    """Sets the parameters of a tower to those of an older one's float export; SystemExit where they do not fit."""
    known = _exported(export)
    body = network.body
    assert isinstance(body, Tower)
    depth = 1 + max(int(name.split(".")[2]) for name in known if name.startswith("body.blocks."))
    for block in list(body.blocks)[depth:]:
        assert isinstance(block, Block)
        for parameter in (block.second_norm.weight, *block.excitation.excite.parameters()):
            torch.nn.init.zeros_(parameter)
    own = network.state_dict()
    passed_on = tuple(f"body.blocks.{number}." for number in range(depth, len(body.blocks)))
    missing = [name for name in own if name not in known and not name.startswith(passed_on)]
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    strange = [name for name, value in known.items() if name not in own or own[name].shape != value.shape]
    if missing or strange:
        raise SystemExit(f"{export}: not the float export of a network as wide and no deeper: {(missing + strange)[0]}")
    network.load_state_dict({**own, **known})


def _exported(export: Path) -> dict[str, Tensor]:
    """Parameters and running statistics by their names in the network."""
    graph = onnx.load(str(export)).graph
    values = {one.name: torch.from_numpy(numpy_helper.to_array(one).copy()) for one in graph.initializer}
    found = {name.removeprefix("network."): value for name, value in values.items() if name.startswith("network.")}
    for node in graph.node:  # weights that were reshaped on the way have no name of their own: the node's says whose
        layer = node.name.removeprefix("/network/").rpartition("/")[0].replace("/", ".")
        if node.op_type == "Conv":
            kernel = values[node.input[1]].permute(0, 2, 3, 1)  # as `Convolution` keeps it
            found[f"{layer}.weight"] = kernel.reshape(len(kernel), -1).contiguous()
        elif node.op_type == "MatMul" and layer in HEADS:
            found[f"{layer}.weight"] = values[node.input[1]].T.contiguous()
    return found
