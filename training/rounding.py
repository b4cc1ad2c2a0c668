"""Integers: what goes into a product has eight bits and its weights seven, in the exported file and in training.

What goes in is divided by a spread for each channel, so that the channels are about as wide as each other (SmoothQuant,
Xiao et al. 2022, arXiv:2211.10438), and rounded by one scale; the weights have one scale for each output. The scales
are fixed, so an answer does not depend on the rest of its batch. A network that is trained with the rounding also
learns to do without the largest values, which are rare and would make every step coarser.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

STEPS = 255  # of what goes in: unsigned
WEIGHT_STEPS = 63  # to each side: with more, sums of products saturate on x86 processors without VNNI
SHARE = 0.85  # of a row's largest value, on average: the range that a network is trained to stay within
TINY = 1e-12


@dataclass(frozen=True)
class Range:
    """What goes into a product: `spread` `[D]`, by which it is divided, and the range of what comes of that."""

    spread: Tensor
    low: float
    high: float

    def scale(self) -> tuple[float, int]:
        """Step and zero point of unsigned 8-bit integers that hold the range, and 0 exactly."""
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        step = (high - low) / STEPS or 1.0
        return step, round(-low / step)

    def bounds(self) -> tuple[float, float]:
        """The least and the largest value that the integers hold."""
        step, zero = self.scale()
        return -zero * step, (STEPS - zero) * step


class Product(nn.Module):
    """`x @ weight.t() + bias` for `x` `[…, D]`, `weight` `[E, D]`; held to 255 steps once it has a range.

    What goes in is taken as it is, with a spread of 1 and no value cut off, unless it is `level`led.
    """

    def __init__(self, *, level: bool = True) -> None:
        super().__init__()
        self.level, self.rounds = level, True
        self.range: Range | None = None
        self.register_buffer("spread", None, persistent=False)

    def hold(self, within: Range) -> None:
        """Cuts and rounds from now on; with `rounds` set to False it only cuts what goes in and rounds the weights."""
        self.range, self.spread = within, within.spread
        self._step, (self._low, self._high) = within.scale()[0], within.bounds()

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.range is not None:
            x = (x / self.spread).clamp(self._low, self._high)
            if self.rounds:
                x = _passed(x, self._step)
            weight = on_grid(weight * self.spread)
        return functional.linear(x, weight, bias)


def on_grid(weight: Tensor) -> Tensor:
    """`weight` `[E, D]` in steps of its own for each output; gradients pass."""
    return _passed(weight, steps_of(weight))


def steps_of(weight: Tensor) -> Tensor:
    """`[E, 1]` for `[E, D]`."""
    return weight.detach().abs().amax(1, keepdim=True).clamp(min=TINY) / WEIGHT_STEPS


def _passed(x: Tensor, step: Tensor | float) -> Tensor:
    return x + ((x / step).round() * step - x).detach()


def products(network: nn.Module) -> Iterator[tuple[str, Product]]:
    """The products of a network that integers may hold, by name: `tokens`, `0.attention`, …, `head`."""
    for name, module in network.named_modules():
        if isinstance(module, Product):
            yield ".".join(part for part in name.split(".") if part not in ("layers", "products")), module


def hold(network: nn.Module, within: Mapping[str, Range]) -> None:
    """Holds the products of these names to their ranges."""
    device = next(network.parameters()).device
    for name, product in products(network):
        if name in within:
            product.hold(replace(within[name], spread=within[name].spread.to(device)))


def held_ranges(network: nn.Module) -> dict[str, Range]:
    """The ranges of the products that are held to one."""
    return {name: product.range for name, product in products(network) if product.range is not None}


@torch.no_grad()
def ranges(network: nn.Module, calls: Iterable[Sequence[Tensor]], share: float | None = None) -> dict[str, Range]:
    """What goes into each product, by its name, when the network is given these arguments: all of it, or with `share`
    as far as that much of a row's largest value on average."""
    inputs: dict[str, list[Tensor]] = {}
    weights: dict[str, Tensor] = {}

    def see(name: str, operands: tuple[Any, ...]) -> None:
        inputs.setdefault(name, []).append(operands[0].float().flatten(end_dim=-2))
        weights[name] = operands[1]

    watched = dict(products(network))
    hooks = [
        product.register_forward_pre_hook(lambda _, operands, name=name: see(name, operands))
        for name, product in watched.items()
    ]
    for arguments in calls:
        network(*arguments)
    for hook in hooks:
        hook.remove()
    return {
        name: _levelled(torch.cat(rows), weights[name], share) if watched[name].level else _whole(torch.cat(rows))
        for name, rows in inputs.items()
    }


def _whole(x: Tensor) -> Range:
    return Range(torch.ones_like(x[0]), float(x.min()), float(x.max()))


def _levelled(x: Tensor, weight: Tensor, share: float | None) -> Range:
    largest = x.abs().amax(0).clamp(min=1e-3)
    shares = (weight.abs() / weight.abs().amax(1, keepdim=True).clamp(min=TINY)).amax(0).clamp(min=1e-3)
    spread = (largest / shares).sqrt()
    spread = spread / spread.log().mean().exp()
    x = x / spread
    low, high = float(x.min()), float(x.max())
    if share is not None:
        usual = share * float(x.abs().amax(1).mean())
        low, high = max(low, -usual), min(high, usual)
    return Range(spread, low, high)
