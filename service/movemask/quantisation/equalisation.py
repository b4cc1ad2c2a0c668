"""Scales channels so that all of them use the 8 bits of a tensor, without changing what the network computes.

A tensor's channels share one scale, which the largest of them sets. Each is divided by a factor and multiplied by it
again where the tensor is read. Both go into weights where only layers read the tensor; ReLU lets positive factors pass.
What a squeeze-and-excitation reads is multiplied behind the pooling and in the gate, which are one number a channel.
Tensors that would need a product of their own are left alone: it costs more time than it gains in accuracy.

Source: cross-layer equalisation, Nagel et al., "Data-free quantization through weight equalization and bias correction"
(2019), arXiv:1906.04721.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from movemask.network.model import Array
from movemask.numeric.ragged import Float
from movemask.quantisation.network import Network, activated
from movemask.quantisation.products import multiply_for_others, passes_factors

#: Half of the spread is taken from a tensor's channels, and half is left to the weights that make up for it.
_POWER = 0.5
_LEAST = 1e-3  # of the largest channel: one that calibration hardly saw may still have values


def equalise(network: Network, batches: Iterable[Mapping[str, Array]]) -> None:
    """Changes a network's weights so that what its layers write is equalised, where that is free."""
    after = activated(network.model.graph)
    fixed = {info.name for info in network.model.graph.output}
    written = {after.get(layer.output, layer.output): layer for layer in network.layers}
    readers = {name: [layer for layer in network.layers if layer.input == name] for name in written}
    axes = {
        name: layer.channel_axis
        for name, layer in written.items()
        if name not in fixed
        and all(reader.channel_axis == layer.channel_axis for reader in readers[name])
        and passes_factors(network, readers[name], name)
    }
    for name, largest in _largest(network, batches, axes).items():
        if largest.max() > 0:
            factors = np.maximum(largest / largest.max(), _LEAST) ** _POWER
            network.scale_outputs(written[name], 1 / factors)
            multiply_for_others(network, readers[name], name, factors)
            for layer in readers[name]:
                network.scale_inputs(layer, factors)


def _largest(network: Network, batches: Iterable[Mapping[str, Array]], axes: Mapping[str, int]) -> dict[str, Float]:
    """The largest absolute value of each channel `[C]` of tensors whose channels are along these axes."""
    found: dict[str, Float] = {}
    for values in network.tensors(batches, sorted(axes)):
        for name, value in values.items():
            others = tuple(axis for axis in range(value.ndim) if axis != axes[name] % value.ndim)
            top = np.abs(value).max(axis=others).astype(np.float64)
            found[name] = np.maximum(found.get(name, 0.0), top)
    return found
