"""Attention among the 64 squares, with three ways to weigh: softmax, softmax_one and the linear kernel elu + 1.

softmax_one (Miller 2023, "Attention Is Off By One") has a one more in the denominator, so that a head may attend to
nothing. The linear kernel: Katharopoulos et al. 2020, arXiv:2006.16236. A learned bias for each head and pair of
squares tells the softmaxes how pieces move; the linear kernel has no scores to add it to.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from movemask.encoding.movemask18 import PLANES
from training import config


class Attention(nn.Module):
    """planes `[B, 18, 8, 8]`, ratings `[B, R]` → squares `[B, 64, F]`."""

    def __init__(self, settings: config.Network, ratings: int) -> None:
        super().__init__()
        self.embed = nn.Linear(PLANES, settings.width)
        self.place = nn.Parameter(torch.randn(64, settings.width) * 0.02)
        self.rated = nn.Linear(ratings, settings.width)
        self.blocks = nn.ModuleList(SquareBlock(settings) for _ in range(settings.depth))
        self.norm = nn.LayerNorm(settings.width)

    def forward(self, planes: Tensor, ratings: Tensor) -> Tensor:
        squares = self.embed(planes.flatten(2).transpose(1, 2)) + self.place + self.rated(ratings)[:, None]
        for block in self.blocks:
            squares = block(squares)
        return self.norm(squares)


class SquareBlock(nn.Module):
    """Attention and a feed-forward layer, each after a norm and around itself."""

    def __init__(self, settings: config.Network) -> None:
        super().__init__()
        width = settings.width
        self.heads, self.kind = settings.heads, settings.attention
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.bias = nn.Parameter(torch.zeros(settings.heads, 64, 64)) if self.kind != "linear" else None
        self.forward_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, settings.expansion * width)
        self.narrow = nn.Linear(settings.expansion * width, width)

    def forward(self, squares: Tensor) -> Tensor:
        size, _, width = squares.shape
        packed = self.queries_keys_values(self.attention_norm(squares))
        split = packed.view(size, 64, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = self._mixed(split[0], split[1], split[2])  # [B, H, 64, D]
        squares = squares + self.out(mixed.transpose(1, 2).reshape(size, 64, width))
        return squares + self.narrow(functional.relu(self.widen(self.forward_norm(squares))).square())

    def _mixed(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        if self.kind == "linear":
            queries, keys = functional.elu(queries) + 1, functional.elu(keys) + 1
            total = queries @ keys.sum(2, keepdim=True).transpose(2, 3)  # [B, H, 64, 1]
            return queries @ (keys.transpose(2, 3) @ values) / total
        scores = queries @ keys.transpose(2, 3) * queries.shape[-1] ** -0.5 + self.bias
        if self.kind == "softmax":
            return torch.softmax(scores, 3) @ values
        # the one in the denominator is exp(0) of a key that is not there
        nothing = torch.zeros_like(scores[..., :1])
        return torch.softmax(torch.cat([scores, nothing], 3), 3)[..., :-1] @ values
