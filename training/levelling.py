"""A network that 8 bits hold well, with the same answers: what goes into and out of its convolutions is levelled.

One scale stands for all channels of a tensor, so where one channel is wide the others have few steps. Here every
channel gets about the same range: what a layer is divided by, the next ones are multiplied with ("cross-layer
equalization", Nagel et al. 2019, arXiv:1906.04721, here with the residual stream and the excitation).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.network import Block, Network

LEAST = 1e-3  # of a range


@torch.no_grad()
def level(network: Network, *inputs: Tensor) -> None:
    """Levels a network by what it sees in a batch of inputs."""
    body = network.body
    blocks: list[Block] = [block for block in body.blocks if isinstance(block, Block)]
    widest = torch.stack([_seen(network, inputs, block.first, given=True)[1] for block in blocks]).amax(0)
    _divide(body.stem_norm, widest)
    for block in blocks:
        _multiply(block.first.weight, widest)
        block.excitation.after = 1 / widest
    for layer in (network.source, network.target, network.promotion):
        layer.weight *= widest
    value = network.value[0]
    assert isinstance(value, nn.Linear)
    value.weight[:, : 2 * len(widest)] *= widest.repeat(2)
    for block in blocks:
        inner = _seen(network, inputs, block.second, given=True)[1]
        _divide(block.first_norm, inner)
        _multiply(block.second.weight, inner)
        low, high = _seen(network, inputs, block.second_norm, given=False)
        spread, centre = (high - low).clamp(min=LEAST) / 2, (high + low) / 2
        block.second_norm.bias -= centre
        _divide(block.second_norm, spread)
        block.excitation.spread, block.excitation.centre = spread, centre


def _seen(network: Network, inputs: tuple[Tensor, ...], layer: nn.Module, *, given: bool) -> tuple[Tensor, Tensor]:
    """The lowest and the highest value of each channel `[F]` that a layer is given, or gives; at least LEAST."""
    found: list[Tensor] = []
    hook = layer.register_forward_hook(lambda _, its, output: found.append(its[0] if given else output))
    network(*inputs)
    hook.remove()
    return found[0].amin((0, 2, 3)), found[0].amax((0, 2, 3)).clamp(min=LEAST)


def _divide(norm: nn.BatchNorm2d, by: Tensor) -> None:
    norm.weight /= by
    norm.bias /= by


def _multiply(weight: Tensor, by: Tensor) -> None:
    """Weights `[out, 9 * in]` of a convolution whose inputs `[in]` were divided."""
    weight *= by.repeat(9)
