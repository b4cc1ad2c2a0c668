"""Network → ONNX, node by node, with the operators that onnxruntime is quick with, in floats or static 8-bit integers.

Activations are `[64, B, D]`, squares first, so that attention multiplies them in place (`FusedMatMul` reads batches
with strides); in `[B, 64, D]` every layer would copy queries, keys and values. In integers a product is
`QuantizeLinear` and `MatMulIntegerToFloat`: one scale for what goes in, found on a few hundred positions, one for each
column of the weights. Scales are fixed, so an answer does not depend on the rest of its batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from training.batches import Batch
from training.network import EPSILON, MOVES, RATING, TOKENS, Layer, Network
from training.rounding import Range, held_ranges, on_grid, steps_of

INPUTS, OUTPUTS = ("planes", "elo_self", "elo_opponent"), ("logits", "value")
OPSET, MICROSOFT = 23, "com.microsoft"
Floats = NDArray[np.float32]


def feeds_of(batch: Batch) -> dict[str, Floats]:
    """A batch as the exported network takes it."""
    arrays = [tensor.contiguous().numpy() for tensor in batch.inputs()]
    return dict(zip(INPUTS, arrays, strict=True))


@torch.no_grad()
def write(network: Network, file: Path, integers: Mapping[str, Range] | None = None) -> None:
    """Writes the network in floats, but the products that `integers` names in integers by these ranges; the batch is
    free, the value comes as probabilities. Of a product that the network was trained to round, floats too have the
    range and the weights that it was trained with."""
    graph = _Graph(integers, held_ranges(network))
    states = graph.embedded(network)
    for number, layer in enumerate(network.layers):
        assert isinstance(layer, Layer)
        states = graph.layer(states, layer, network.biases, f"{number}.")
    graph.head(states, network)
    onnx.save(graph.model(), str(file))


class _Graph:
    """The nodes and constants so far; a method adds a part of the network and returns the name of what comes out."""

    def __init__(self, integers: Mapping[str, Range] | None, trained: Mapping[str, Range]) -> None:
        self._integers, self._trained = integers or {}, trained
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._names: dict[tuple[str, tuple[int, ...], bytes], str] = {}  # of constants, by what they hold
        self._quantised: dict[str, tuple[str, str, str]] = {}  # by what was quantised

    def model(self) -> onnx.ModelProto:
        def tensor(name: str, *shape: int) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])

        inputs = [tensor("planes", 64, TOKENS), tensor("elo_self"), tensor("elo_opponent")]
        outputs = [tensor("logits", len(self._slots)), tensor("value", 3)]
        graph = helper.make_graph(self._nodes, "movemask", inputs, outputs, list(self._constants.values()))
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def embedded(self, network: Network) -> str:
        weight, bias = network.ratings.weight / RATING, network.tokens.bias - 1.5 * network.ratings.weight.sum(1)
        elos = [self._op("Unsqueeze", name, self._list(1)) for name in INPUTS[1:]]
        ratings = self._op("Gemm", self._op("Concat", *elos, axis=1), self._constant(weight.t()), self._constant(bias))
        planes = self._op("Transpose", "planes", perm=[1, 0, 2])
        tokens = self._product("tokens", planes, network.tokens.weight.t())
        return self._op("Add", tokens, self._op("Unsqueeze", ratings, self._list(0)))

    def layer(self, x: str, layer: Layer, biases: Tensor, prefix: str) -> str:
        if layer.activation is not nn.functional.relu:
            raise SystemExit("networks with gelu cannot be written: train with relu, which costs less")
        by_pair = self._op("Reshape", self._squares_bias(x, layer, biases, prefix), self._list(-1, layer.heads, 64, 64))
        width = layer.out.in_features
        scale = (width // layer.heads) ** -0.5
        heads = self._list(64, -1, layer.heads, width // layer.heads)
        projections = (layer.attention.weight * _column([scale, 1, 1], width)).t()
        seen_by = self._spread(f"{prefix}out", layer.out.in_features)
        projections = projections / torch.cat([torch.ones(2 * width), seen_by])
        spread = self._spread(f"{prefix}attention", layer.attention.in_features)
        divided = self._divided(x, spread)
        query, key, value = (
            self._op("Reshape", self._product(f"{prefix}attention", divided, weight, spread=spread), heads)
            for weight in projections.chunk(3, 1)
        )
        strides = {"domain": MICROSOFT, "transBatchB": 1}
        scores = self._op("FusedMatMul", query, key, transBatchA=1, transB=1, **strides)
        weights = self._op("Softmax", self._op("Add", scores, by_pair), axis=-1)
        attended = self._op("Transpose", self._op("FusedMatMul", weights, value, **strides), perm=[2, 0, 1, 3])
        attended = self._op("Reshape", attended, self._list(64, -1, width))
        x = self._normalised(
            x, self._product(f"{prefix}out", attended, layer.out.weight.t(), spread=seen_by), layer.attention_norm
        )
        hidden_by = self._spread(f"{prefix}second", layer.second.in_features)
        first, bias = layer.first.weight.t() / hidden_by, layer.first.bias / hidden_by
        spread = self._spread(f"{prefix}first", layer.first.in_features)
        hidden = self._product(f"{prefix}first", self._divided(x, spread), first, bias, spread)
        if f"{prefix}second" not in self._integers:  # unsigned integers with their zero at 0 have no negative numbers
            hidden = self._op("Relu", hidden)
        second = self._product(f"{prefix}second", hidden, layer.second.weight.t(), layer.second.bias, hidden_by)
        return self._normalised(x, second, layer.hidden_norm)

    def head(self, x: str, network: Network) -> None:
        """The pairs are `x M xᵀ` with M made of both weights."""
        head = network.head
        width = head.source.in_features
        pairs = head.source.weight.t() @ head.target.weight * width**-0.5
        promotions = (head.promotion.weight @ head.target.weight).t()
        spread = self._spread("head", width)
        x = self._norm(x, head.norm, 1 / spread)
        pairs, promotions = pairs * spread, spread[:, None] * promotions
        source = self._op("Unsqueeze", self._product("head", x, pairs, spread=spread), self._list(2))
        target = self._op("Unsqueeze", x, self._list(2))
        strides = {"domain": MICROSOFT, "transBatchA": 1, "transBatchB": 1}
        scores = self._op("FusedMatMul", source, target, transB=1, **strides)
        scores = self._op("Reshape", scores, self._list(-1, 64 * 64))
        pieces = self._op("Transpose", self._op("MatMul", x, self._constant(promotions)), perm=[1, 0, 2])
        pieces = self._op("Reshape", pieces, self._list(-1, 64 * 4))
        self._slots = head.pairs.numpy()
        moves, promoting, chosen = (
            self._op("Gather", of, self._constant(indices), axis=1)
            for of, indices in (
                (scores, self._slots[:MOVES]),
                (scores, self._slots[MOVES:]),
                (pieces, head.pieces.numpy()),
            )
        )
        logits = self._op("Concat", moves, self._op("Add", promoting, chosen), axis=1)
        self._op("Sub", logits, self._constant(head.offset), to="logits")
        board = self._op("Mul", self._op("ReduceMean", x, self._list(0), keepdims=0), self._constant(spread))
        board = self._op("Relu", self._gemm(self._norm(board, head.board_norm), head.hidden))
        self._op("Softmax", self._gemm(board, head.value), axis=1, to="value")

    def _squares_bias(self, x: str, layer: Layer, biases: Tensor, prefix: str) -> str:
        board = self._op("ReduceMean", x, self._list(0), keepdims=0)
        board = self._norm(self._op("Relu", self._gemm(board, layer.squeeze)), layer.squeeze_norm)
        board = self._norm(self._op("Relu", self._gemm(board, layer.excite)), layer.excite_norm)
        return self._product(f"{prefix}bias", self._op("Reshape", board, self._list(-1, biases.shape[1])), biases.t())

    def _spread(self, name: str, width: int) -> Tensor:
        """What each channel of a product's input is divided by, and the weights multiplied with; ones for floats."""
        return self._integers[name].spread if name in self._integers else torch.ones(width)

    def _divided(self, x: str, spread: Tensor) -> str:
        return x if (spread == 1).all() else self._op("Mul", x, self._constant(1 / spread))

    def _product(
        self, name: str, x: str, weight: Tensor, bias: Tensor | None = None, spread: Tensor | float = 1.0
    ) -> str:
        """`spread * x @ weight + bias`."""
        added = [] if bias is None else [self._constant(bias)]
        if name not in self._integers:
            if name in self._trained:
                x, weight = self._within(x, self._trained[name]), _rounded(weight, self._trained[name])
            product = self._op("MatMul", x, self._constant(weight))
            return self._op("Add", product, *added) if added else product
        weight = torch.as_tensor(spread).expand(len(weight))[:, None] * weight
        if x not in self._quantised:
            step, zero = self._integers[name].scale()
            constants = self._constant(np.float32(step)), self._constant(np.uint8(zero))
            self._quantised[x] = (self._op("QuantizeLinear", x, *constants), *constants)
        quantised, step_name, zero_name = self._quantised[x]
        steps = steps_of(weight.t())[:, 0]
        rounded = self._constant((weight / steps).round().to(torch.int8))
        zeros = self._constant(torch.zeros(len(steps), dtype=torch.int8))
        operands = (quantised, rounded, step_name, self._constant(steps), zero_name, zeros)
        return self._op("MatMulIntegerToFloat", *operands, *added, domain=MICROSOFT)

    def _within(self, x: str, trained: Range) -> str:
        low, high = (self._constant(bound * trained.spread) for bound in trained.bounds())
        return self._op("Max", self._op("Min", x, high), low)

    def _normalised(self, x: str, more: str, weight: Tensor) -> str:
        return self._op("RMSNormalization", self._op("Add", x, more), self._constant(weight), axis=-1, epsilon=EPSILON)

    def _norm(self, x: str, norm: nn.LayerNorm, times: Tensor | float = 1.0) -> str:
        weight, bias = self._constant(norm.weight * times), self._constant(norm.bias * times)
        return self._op("LayerNormalization", x, weight, bias, axis=-1, epsilon=norm.eps)

    def _gemm(self, x: str, layer: nn.Module) -> str:
        assert isinstance(layer, nn.Linear)
        return self._op("Gemm", x, self._constant(layer.weight.t()), self._constant(layer.bias))

    def _list(self, *numbers: int) -> str:
        return self._constant(np.array(numbers, dtype=np.int64), f"list{numbers}")

    def _constant(self, value: Tensor | np.generic | NDArray[np.generic], name: str | None = None) -> str:
        array = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
        # Layers share the matrix of their biases: it is written once.
        name = name or self._names.setdefault(
            (array.dtype.str, array.shape, array.tobytes()), f"constant{len(self._constants)}"
        )
        self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        return name

    def _op(self, kind: str, *inputs: str, domain: str = "", to: str | None = None, **attributes: object) -> str:
        to = to or f"{kind}{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [to], domain=domain, **attributes))
        return to


def _rounded(weight: Tensor, trained: Range) -> Tensor:
    spread = trained.spread[:, None]
    return on_grid((spread * weight).t()).t() / spread


def _column(factors: list[float], width: int) -> Tensor:
    return torch.tensor(factors).repeat_interleave(width)[:, None]
