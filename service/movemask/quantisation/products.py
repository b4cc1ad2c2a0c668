"""Multiplies the channels of a tensor where it is read, if that takes no product over the whole tensor."""

from __future__ import annotations

from collections.abc import Collection

import onnx
from onnx import helper

from movemask.numeric.ragged import Float
from movemask.quantisation.network import Layer, Network


def passes_factors(network: Network, layers: Collection[Layer], name: str) -> bool:
    """Whether every node but these layers that reads a tensor can be given it times one factor a channel for free."""
    return all(
        node.op_type == "GlobalAveragePool" or _gate(network, node, name) is not None
        for node in _others(network, layers, name)
    )


def multiply_for_others(network: Network, layers: Collection[Layer], name: str, factors: Float) -> None:
    """Makes all nodes but these layers compute with a tensor `[B, C, H, W]` times factors `[C]`; `passes_factors`."""
    along = factors[None, :, None, None]
    for number, node in enumerate(_others(network, layers, name)):
        constant = f"{name}/factors{number}"
        gate = _gate(network, node, name)
        if gate is None:  # the mean of a product is the product of the mean
            pooled = node.output[0]
            node.output[0] = f"{pooled}/mean"
            _insert(network, node.output[0], pooled, constant, along)
        else:
            product = f"{gate}/equalised{number}"
            for place, read in enumerate(node.input):
                if read == gate:
                    node.input[place] = product
            _insert(network, gate, product, constant, along)


def _others(network: Network, layers: Collection[Layer], name: str) -> list[onnx.NodeProto]:
    names = {layer.name for layer in layers}
    return [node for node in network.model.graph.node if name in node.input and node.name not in names]


def _gate(network: Network, node: onnx.NodeProto, name: str) -> str | None:
    """What a node multiplies a tensor by, if that is one number a channel, as in squeeze-and-excitation."""
    if node.op_type != "Mul" or list(node.input).count(name) != 1:
        return None
    (other,) = (read for read in node.input if read != name)
    shapes = (info.type.tensor_type.shape.dim for info in network.model.graph.value_info if info.name == other)
    sizes = [size.dim_value for size in next(shapes, [])]
    return other if len(sizes) == 4 and sizes[2:] == [1, 1] else None


def _insert(network: Network, name: str, product: str, constant: str, factors: Float) -> None:
    """Adds the product of a tensor and a constant behind the node that makes the tensor."""
    network.add_constant(constant, factors)
    nodes = network.model.graph.node
    maker = next(place for place, node in enumerate(nodes) if name in node.output)
    nodes.insert(maker + 1, helper.make_node("Mul", [name, constant], [product], name=f"{constant}/product"))
