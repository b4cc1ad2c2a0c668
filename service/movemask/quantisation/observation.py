"""What a network's layers see of the positions that it is calibrated on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from movemask.network.model import Array
from movemask.quantisation.network import Network, activated
from movemask.quantisation.rounding import Moments


@dataclass(frozen=True)
class Seen:
    """What calibration saw.

    moments : of each layer's inputs
    ranges : the lowest and the highest value of each tensor, and 0
    whole : the tensors of whole numbers from 0 to 255
    """

    moments: Mapping[str, Moments]
    ranges: Mapping[str, tuple[float, float]]
    whole: frozenset[str]


def seen(network: Network, batches: Iterable[Mapping[str, Array]]) -> Seen:
    """What a network's layers see in batches of inputs."""
    after = activated(network.model.graph)
    layers = network.layers
    names = {layer.input for layer in layers} | {after.get(layer.output, layer.output) for layer in layers}
    moments = {
        layer.name: Moments(layer.matrix(network.constants[layer.weight]).shape[1], centred=layer.bias is not None)
        for layer in layers
    }
    ranges: dict[str, tuple[float, float]] = {}
    whole = set(names)
    for values in network.tensors(batches, sorted(names)):
        for name, value in values.items():
            low, high = ranges.get(name, (0.0, 0.0))
            ranges[name] = (min(low, float(value.min())), max(high, float(value.max())))
            if name in whole and not ((value == np.round(value)) & (value >= 0) & (value <= 255)).all():
                whole.discard(name)
        for layer in layers:
            moments[layer.name].add(layer.inputs(values[layer.input], network.shape(layer)))
    return Seen(moments, ranges, frozenset(whole))
