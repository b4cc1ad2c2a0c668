"""Writes a network with 8-bit integers, by onnxruntime's static quantiser.

The caller says which layers to quantise. Static integers alone can be served: the scales of dynamic ones
(`DynamicQuantizeLinear`) are those of a whole batch, so that an answer would depend on the others of its batch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnxruntime.quantization import QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from movemask.errors import ContractError
from movemask.network.model import Array

_LEAST = 1024  # weights; to convert what goes into a smaller layer costs more than it saves
#: Whole numbers from 0 to 255 stay what they are. By the largest value, such as lc0's clock, the scale would be 0.4.
_EXACT: dict[str, Any] = {"scale": np.array(1, np.float32), "zero_point": np.array(0, np.uint8)}


def quantise(
    file: Path,
    target: Path,
    outputs: Sequence[str],
    batches: Sequence[Mapping[str, Array]],
    reduced: bool,
    last: int | None,
) -> tuple[list[str], list[str]]:
    """Writes the network of `file` with integers to `target`, and returns the layers in integers and those in float.

    Integers are the layers that each of the `outputs`, the logits and the value, depends on: a head is a small part of
    the work, and rounding shows most there. Their ranges are those of the `batches`. `reduced` weights have 7 bits;
    `last` takes only so many of the last layers, since what is rounded early is carried through all that follows.

    Raises ContractError for a network that has integers already, or nothing to make integers of.
    """
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        try:
            quant_pre_process(str(file), str(prepared), skip_symbolic_shape=True)
        except Exception as error:  # onnxruntime's and onnx's share no base
            raise ContractError(f"{file.name}: cannot be prepared: {str(error).splitlines()[0][:300]}") from None
        model = onnx.load(str(prepared))
        graph = model.graph
        already = sorted({node.op_type for node in graph.node if "Quant" in node.op_type or "Integer" in node.op_type})
        if already:
            raise ContractError(f"{file.name}: is already quantised: it has {', '.join(already)}")
        for number, node in enumerate(graph.node):
            node.name = node.name or f"{node.op_type}_{number}"
        layers = _layers(graph)
        chosen = _trunk(graph, layers, outputs)[-(last or 0) :]
        if not chosen:
            raise ContractError(f"{file.name}: has no large layer with constant float weights before its heads")
        relus = [node.name for node in graph.node if node.op_type == "Relu"]  # joined with a convolution before it
        own = _with_own_inputs(graph, chosen)
        exact = {own[name]: [_EXACT] for name in own if name in batches[0] and _whole([one[name] for one in batches])}
        onnx.save(model, str(prepared))
        quantize_static(
            str(prepared),
            str(target),
            SimpleNamespace(get_next=partial(next, iter(batches), None)),
            per_channel=True,
            reduce_range=reduced,
            weight_type=QuantType.QInt8,
            activation_type=QuantType.QUInt8,
            op_types_to_quantize=["Conv", "MatMul", "Relu"],
            nodes_to_quantize=[*chosen, *relus],
            extra_options={
                "OpTypesToExcludeOutputQuantization": ["MatMul"],  # its kernel writes floats as fast
                "TensorQuantOverrides": exact,
            },
        )
    return chosen, [name for name in layers if name not in chosen]


def _layers(graph: onnx.GraphProto) -> dict[str, str]:
    """The outputs of convolutions and matrix products with constant float weights, and not too few, by name.

    Products for one vector a position, such as squeeze-and-excitation's, are `Gemm` by now, and too small to count.
    """
    constants = {tensor.name for tensor in graph.initializer}
    ranks = {
        tensor.name: len(tensor.dims)
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) >= _LEAST
    }
    return {
        node.name: node.output[0]
        for node in graph.node
        if node.op_type in ("Conv", "MatMul") and node.input[0] not in constants and node.input[1] in ranks
        if node.op_type == "Conv" or ranks[node.input[1]] == 2
    }


def _trunk(graph: onnx.GraphProto, layers: Mapping[str, str], outputs: Sequence[str]) -> list[str]:
    """The layers that all outputs depend on; where there are none, or one output, all that lead to it but the last."""
    makers = {name: node for node in graph.node for name in node.output}

    def behind(output: str) -> set[str]:
        wanted, waiting = set[str](), [output]
        while waiting:
            name = waiting.pop()
            if name in makers and name not in wanted:
                wanted.add(name)
                waiting += makers[name].input
        return wanted

    first, *others = (behind(output) for output in outputs)
    shared = [name for name, made in layers.items() if all(made in one for one in (first, *others))]
    return shared if others and shared else [name for name, made in layers.items() if made in first][:-1]


def _with_own_inputs(graph: onnx.GraphProto, layers: Collection[str]) -> dict[str, str]:
    """Lets the layers read through an `Identity`, and returns its output by its input.

    The quantiser rounds a tensor for all that read it, so that a residual stream would lose a little in every block.
    onnxruntime removes the node.
    """
    own: dict[str, str] = {}
    nodes = []
    for node in graph.node:
        if node.name in layers:
            name = node.input[0]
            if name not in own:
                own[name] = f"{name}/own"
                nodes.append(helper.make_node("Identity", [name], [own[name]], name=own[name]))
            node.input[0] = own[name]
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return own


def _whole(batches: Sequence[Array]) -> bool:
    return all((values == np.clip(np.round(values), 0, 255)).all() for values in batches)
