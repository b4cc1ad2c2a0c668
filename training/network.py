"""The network: planes and both ratings in, a body over the 64 squares, a from-to policy head and a value head.

The body is a residual tower (He et al. 2015, arXiv:1512.03385) whose squeeze-and-excitation (Hu et al. 2017,
arXiv:1709.01507; scale and bias as in lc0) knows both ratings. The policy is a dot product of square embeddings, as in
lc0's attention policy head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from movemask.encoding.movemask_planes import PLANES
from movemask.encoding.vocabularies import vocabulary
from training import config

RATINGS = 32  # numbers that stand for the two ratings inside
HEAD = 64
MOVES = 1792  # from-to slots of movemask-1880; the promotions follow


class Network(nn.Module):
    """planes `[B, 24, 8, 8]`, Elo of both sides `[B]` → logits `[B, 1880]`, win/draw/loss logits `[B, 3]`."""

    def __init__(self, settings: config.Network) -> None:
        super().__init__()
        width = settings.width
        self.ratings = nn.Sequential(nn.Linear(2, RATINGS), nn.ReLU(), nn.Linear(RATINGS, RATINGS))
        self.body = Tower(settings)
        self.source = nn.Linear(width, HEAD)
        self.target = nn.Linear(width, HEAD)
        self.promotion = nn.Linear(width, 4)
        self.value = nn.Sequential(nn.Linear(2 * width + RATINGS, 64), nn.ReLU(), nn.Linear(64, 3))
        pairs, pieces = _slot_indices()
        self.register_buffer("pairs", pairs, persistent=False)
        self.register_buffer("pieces", pieces, persistent=False)

    def forward(self, planes: Tensor, elo_self: Tensor, elo_opponent: Tensor) -> tuple[Tensor, Tensor]:
        ratings = self.ratings(torch.stack([elo_self, elo_opponent], 1) / 500.0 - 3.0)
        squares = self.body(planes, ratings)  # [B, 64, F]
        source, target = self.source(squares), self.target(squares)
        pairs = (source @ target.transpose(1, 2) * HEAD**-0.5).flatten(1)  # [B, 64 * 64]
        pieces = self.promotion(squares).flatten(1)  # [B, 64 * 4], by to-square and piece
        logits = pairs[:, self.pairs]
        promotions = logits[:, MOVES:] + pieces[:, self.pieces]
        pooled = torch.cat([squares.mean(1), squares.amax(1), ratings], 1)
        return torch.cat([logits[:, :MOVES], promotions], 1), self.value(pooled)

    @torch.no_grad()
    def cool(self, temperature: float) -> None:
        """Divides every policy logit by `temperature` from now on, in the weights that make them."""
        for layer in (self.source, self.promotion):  # a pair's logit is linear in its source
            layer.weight /= temperature
            layer.bias /= temperature


class Tower(nn.Module):
    """planes `[B, 24, 8, 8]`, ratings `[B, R]` → squares `[B, 64, F]`."""

    def __init__(self, settings: config.Network) -> None:
        super().__init__()
        self.stem = Convolution(PLANES, settings.width)
        self.stem_norm = nn.BatchNorm2d(settings.width)
        self.blocks = nn.ModuleList(Block(settings.width) for _ in range(settings.depth))

    def forward(self, planes: Tensor, ratings: Tensor) -> Tensor:
        x = torch.relu(self.stem_norm(self.stem(planes)))
        for block in self.blocks:
            x = block(x, ratings)
        return x.flatten(2).transpose(1, 2)


class Block(nn.Module):
    """Two convolutions, the excitation, and around."""

    def __init__(self, filters: int) -> None:
        super().__init__()
        self.first = Convolution(filters, filters)
        self.first_norm = nn.BatchNorm2d(filters)
        self.second = Convolution(filters, filters)
        self.second_norm = nn.BatchNorm2d(filters)
        self.excitation = RatedSqueezeExcitation(filters)

    def forward(self, x: Tensor, ratings: Tensor) -> Tensor:
        y = torch.relu(self.first_norm(self.first(x)))
        y = self.excitation(self.second_norm(self.second(y)), ratings)
        return torch.relu(x + y)


class RatedSqueezeExcitation(nn.Module):
    """Scales and shifts each channel by what the whole board and the two ratings say.

    Channels may come and go levelled (`training.levelling`): `x * spread + centre` is what they stand for, and what is
    given back is multiplied by `after`.
    """

    spread: Tensor
    centre: Tensor
    after: Tensor

    def __init__(self, filters: int) -> None:
        super().__init__()
        self.squeeze = nn.Linear(filters + RATINGS, 32)
        self.excite = nn.Linear(32, 2 * filters)
        self.register_buffer("spread", torch.ones(filters), persistent=False)
        self.register_buffer("centre", torch.zeros(filters), persistent=False)
        self.register_buffer("after", torch.ones(filters), persistent=False)

    def forward(self, x: Tensor, ratings: Tensor) -> Tensor:  # [B, F, 8, 8], [B, R] → [B, F, 8, 8]
        means = x.mean((2, 3)) * self.spread + self.centre
        scale, shift = self.excite(torch.relu(self.squeeze(torch.cat([means, ratings], 1)))).chunk(2, 1)
        gain = torch.sigmoid(scale) * self.after
        shift = shift * self.after + gain * self.centre
        return x * (gain * self.spread)[:, :, None, None] + shift[:, :, None, None]


class Convolution(nn.Module):
    """A 3 x 3 convolution whose weight is kept as the matrix that it is, `[out, 9 * in]`, so that Muon can train it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.shape = (outputs, 3, 3, inputs)  # channels last, as the planes come
        self.weight = nn.Parameter(torch.randn(outputs, inputs * 9) * (2 / (inputs * 9)) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, self.weight.view(self.shape).permute(0, 3, 1, 2), padding=1)


def _slot_indices() -> tuple[Tensor, Tensor]:
    """For each slot its index among 64 x 64 from-to pairs, and for each promotion slot its (to-square, piece)."""
    moves = [_parsed(name) for name in vocabulary("movemask-1880").names()]
    pairs = [source * 64 + target for source, target, _ in moves]
    pieces = [target * 4 + "qrbn".index(piece) for _, target, piece in moves if piece]
    return torch.tensor(pairs), torch.tensor(pieces)


def _parsed(name: str) -> tuple[int, int, str]:
    squares = [(ord(name[i]) - ord("a")) + 8 * (int(name[i + 1]) - 1) for i in (0, 2)]
    return squares[0], squares[1], name[4:]
