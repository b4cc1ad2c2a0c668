"""The network: a small residual tower whose squeeze-and-excitation knows both ratings, and a from-to policy head.

References: residual tower (He et al. 2015, arXiv:1512.03385); squeeze-and-excitation (Hu et al. 2017,
arXiv:1709.01507) with scale and bias as in lc0; from-to policy by a dot product of square embeddings as in lc0's
attention policy head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from service.encoding.movemask_planes import PLANES
from service.encoding.vocabularies import vocabulary

EMBEDDING = 32
HEAD = 64
MOVES = 1792  # from-to slots of movemask-1880; the promotions follow


class RatedSqueezeExcitation(nn.Module):
    """Scales and shifts each channel by what the whole board and the two ratings say."""

    def __init__(self, filters: int) -> None:
        super().__init__()
        self.squeeze = nn.Linear(filters + EMBEDDING, 32)
        self.excite = nn.Linear(32, 2 * filters)

    def forward(self, x: Tensor, ratings: Tensor) -> Tensor:  # [B, F, 8, 8], [B, E] → [B, F, 8, 8]
        hidden = torch.relu(self.squeeze(torch.cat([x.mean((2, 3)), ratings], 1)))
        scale, shift = self.excite(hidden)[:, :, None, None].chunk(2, 1)
        return x * torch.sigmoid(scale) + shift


class Block(nn.Module):
    def __init__(self, filters: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(filters)
        self.second = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(filters)
        self.excitation = RatedSqueezeExcitation(filters)

    def forward(self, x: Tensor, ratings: Tensor) -> Tensor:
        y = torch.relu(self.first_norm(self.first(x)))
        y = self.excitation(self.second_norm(self.second(y)), ratings)
        return torch.relu(x + y)


class Network(nn.Module):
    """planes `[B, 18, 8, 8]`, Elo of both sides `[B]` → logits `[B, 1880]`, win/draw/loss logits `[B, 3]`."""

    def __init__(self, filters: int, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(PLANES, filters, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(filters)
        self.ratings = nn.Sequential(nn.Linear(2, EMBEDDING), nn.ReLU(), nn.Linear(EMBEDDING, EMBEDDING))
        self.tower = nn.ModuleList(Block(filters) for _ in range(blocks))
        self.source = nn.Linear(filters, HEAD)
        self.target = nn.Linear(filters, HEAD)
        self.promotion = nn.Linear(filters, 4)
        self.value = nn.Sequential(nn.Linear(2 * filters + EMBEDDING, 64), nn.ReLU(), nn.Linear(64, 3))
        pairs, pieces = _slot_indices()
        self.register_buffer("pairs", pairs, persistent=False)
        self.register_buffer("pieces", pieces, persistent=False)

    def forward(self, planes: Tensor, elo_self: Tensor, elo_opponent: Tensor) -> tuple[Tensor, Tensor]:
        ratings = self.ratings(torch.stack([elo_self, elo_opponent], 1) / 500.0 - 3.0)
        x = torch.relu(self.stem_norm(self.stem(planes)))
        for block in self.tower:
            x = block(x, ratings)
        squares = x.flatten(2).transpose(1, 2)  # [B, 64, F]
        source, target = self.source(squares), self.target(squares)
        pairs = (source @ target.transpose(1, 2) * HEAD**-0.5).flatten(1)  # [B, 64 * 64]
        pieces = self.promotion(squares).flatten(1)  # [B, 64 * 4], by to-square and piece
        logits = pairs[:, self.pairs]
        promotions = logits[:, MOVES:] + pieces[:, self.pieces]
        pooled = torch.cat([x.mean((2, 3)), x.amax((2, 3)), ratings], 1)
        return torch.cat([logits[:, :MOVES], promotions], 1), self.value(pooled)


def _slot_indices() -> tuple[Tensor, Tensor]:
    """For each slot its index among 64 x 64 from-to pairs, and for each promotion slot its (to-square, piece)."""
    moves = [_parsed(name) for name in vocabulary("movemask-1880").names()]
    pairs = [source * 64 + target for source, target, _ in moves]
    pieces = [target * 4 + "qrbn".index(piece) for _, target, piece in moves if piece]
    return torch.tensor(pairs), torch.tensor(pieces)


def _parsed(name: str) -> tuple[int, int, str]:
    squares = [(ord(name[i]) - ord("a")) + 8 * (int(name[i + 1]) - 1) for i in (0, 2)]
    return squares[0], squares[1], name[4:]
