"""The network: a transformer over the 64 squares in Maia-3's shape, and Maia-3 itself, its teacher.

Each square is a token: the pieces on it in eight positions of the game, and what Maia-3 lacks, castling rights and the
en-passant square. Attention adds a bias for each pair of squares that depends on the whole board (Monroe and Chalmers
2024, arXiv:2409.12272; lc0 calls it smolgen). Layers are normalised after each half (Vaswani et al. 2017,
arXiv:1706.03762) by the root mean square (Zhang and Sennrich 2019, arXiv:1910.07467). The policy is a dot product of
square embeddings.

Shapes: `B` positions, 64 squares a1 first, `F` tokens, `D` width, `H` heads, `A` 1880 slots of `movemask-1880`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from movemask.encoding.vocabularies import vocabulary
from training import config
from training.rounding import Product

TOKENS = 99  # numbers for each square: eight positions of 12 pieces, our and their castling rooks, en passant
PIECES = 96  # the first of them, all that Maia-3 takes
BIAS = 64  # numbers that a head's bias is made of
MOVES = 1792  # from-to slots of movemask-1880; the promotions follow
RATING = 1000.0  # ratings come in as multiples of this, from 1500
EPSILON = 1e-6
PRODUCTS = ("bias", "attention", "out", "first", "second")  # of a layer


class Network(nn.Module):
    """tokens `[B, 64, F]`, Elo of both sides `[B]` → logits `[B, A]`, win/draw/loss logits `[B, 3]`."""

    def __init__(self, settings: config.Network) -> None:
        super().__init__()
        width = settings.width
        self.tokens = nn.Linear(TOKENS, width)
        self.ratings = nn.Linear(2, width, bias=False)
        self.biases = nn.Parameter(torch.randn(64 * 64, BIAS) * 0.02)  # of each pair of squares
        self.products = nn.ModuleDict({"tokens": Product(level=False)})
        self.layers = nn.ModuleList(Layer(settings) for _ in range(settings.layers))
        self.head = Head(width)

    def forward(self, tokens: Tensor, elo_self: Tensor, elo_opponent: Tensor) -> tuple[Tensor, Tensor]:
        return self.head(self.states(tokens, elo_self, elo_opponent)[-1])

    def embedded(self, tokens: Tensor, elo_self: Tensor, elo_opponent: Tensor) -> Tensor:
        """`[B, 64, D]`: what goes into the first layer."""
        ratings = torch.stack([elo_self, elo_opponent], 1) / RATING - 1.5
        return self.products["tokens"](tokens, self.tokens.weight, self.tokens.bias) + self.ratings(ratings)[:, None]

    def states(self, tokens: Tensor, elo_self: Tensor, elo_opponent: Tensor) -> list[Tensor]:
        """`[B, 64, D]` before the first layer and after each."""
        states = [self.embedded(tokens, elo_self, elo_opponent)]
        for layer in self.layers:
            states.append(layer(states[-1], self.biases))
        return states

    @torch.no_grad()
    def cool(self, temperature: float) -> None:
        """Divides every policy logit by `temperature` from now on, in the weights that make them."""
        for layer in (self.head.source, self.head.promotion):  # a pair's logit is linear in its source
            layer.weight /= temperature

    def lower(self, by: float) -> None:
        """Takes `by` from every policy logit from now on; no policy changes."""
        self.head.offset.fill_(by)


class Layer(nn.Module):
    """Attention with a bias that the whole board decides, a hidden layer, each added and normalised."""

    def __init__(self, settings: config.Network) -> None:
        super().__init__()
        width = settings.width
        self.heads = settings.heads
        self.activation = functional.gelu if settings.activation == "gelu" else functional.relu
        self.squeeze, self.squeeze_norm = nn.Linear(width, BIAS), nn.LayerNorm(BIAS)
        self.excite, self.excite_norm = nn.Linear(BIAS, BIAS * self.heads), nn.LayerNorm(BIAS * self.heads)
        self.attention = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.first, self.second = nn.Linear(width, settings.hidden), nn.Linear(settings.hidden, width)
        self.attention_norm = nn.Parameter(torch.ones(width))
        self.hidden_norm = nn.Parameter(torch.ones(width))
        self.products = nn.ModuleDict({name: Product(level=name != "bias") for name in PRODUCTS})

    def forward(self, x: Tensor, biases: Tensor) -> Tensor:  # [B, 64, D], [64 * 64, BIAS] → [B, 64, D]
        board = self.squeeze_norm(self.activation(self.squeeze(x.mean(1))))
        board = self.excite_norm(self.activation(self.excite(board)))
        times = self.products
        bias = times["bias"](board.view(-1, BIAS), biases).view(-1, self.heads, 64, 64)
        projections = times["attention"](x, self.attention.weight).chunk(3, 2)
        query, key, value = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in projections)
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        x = normalised(x + times["out"](attended.transpose(1, 2).flatten(2), self.out.weight), self.attention_norm)
        hidden = self.activation(times["first"](x, self.first.weight, self.first.bias))
        return normalised(x + times["second"](hidden, self.second.weight, self.second.bias), self.hidden_norm)


class Head(nn.Module):
    """squares `[B, 64, D]` → logits `[B, A]`, win/draw/loss logits `[B, 3]`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.board_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.source, self.target = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.promotion = nn.Linear(width, 4, bias=False)  # by piece, of the target
        self.hidden, self.value = nn.Linear(width, width), nn.Linear(width, 3)
        pairs, pieces = _slot_indices()
        self.register_buffer("pairs", pairs, persistent=False)
        self.register_buffer("pieces", pieces, persistent=False)
        self.register_buffer("offset", torch.zeros(()), persistent=False)
        self.products = Product()

    def forward(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        squares = self.norm(squares)
        source = self.products(squares, self.target.weight.t() @ self.source.weight * squares.shape[2] ** -0.5)
        pairs = (source @ squares.transpose(1, 2)).flatten(1)  # [B, 64 * 64]
        promotions = (squares @ (self.promotion.weight @ self.target.weight).t()).flatten(1)  # [B, 64 * 4], by piece
        logits = pairs[:, self.pairs]
        logits = torch.cat([logits[:, :MOVES], logits[:, MOVES:] + promotions[:, self.pieces]], 1)
        board = self.board_norm(squares.mean(1))
        return logits - self.offset, self.value(functional.relu(self.hidden(board)))


def normalised(x: Tensor, weight: Tensor) -> Tensor:
    """`x` `[…, D]` with a root mean square of 1, times `weight` `[D]`."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * weight


def _slot_indices() -> tuple[Tensor, Tensor]:
    """For each slot its index among 64 x 64 from-to pairs, and for each promotion slot its (to-square, piece)."""
    moves = [_parsed(name) for name in vocabulary("movemask-1880").names()]
    pairs = [source * 64 + target for source, target, _ in moves]
    pieces = [target * 4 + "qrbn".index(piece) for _, target, piece in moves if piece]
    return torch.tensor(pairs), torch.tensor(pieces)


def _parsed(name: str) -> tuple[int, int, str]:
    squares = [(ord(name[i]) - ord("a")) + 8 * (int(name[i + 1]) - 1) for i in (0, 2)]
    return squares[0], squares[1], name[4:]
