"""Writes a `Change` into an ONNX graph: the operators between the contract's tensor and the file's tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from movemask.network_tools.alternatives import Reorder
from movemask.network_tools.family_match import Change

_TYPES = {
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "bool": TensorProto.BOOL,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16,
    "uint16": TensorProto.UINT16,
    "int32": TensorProto.INT32,
    "uint32": TensorProto.UINT32,
    "int64": TensorProto.INT64,
    "uint64": TensorProto.UINT64,
}
#: Added to a probability before its logarithm: far below any probability that matters, and never 0.
_TINY = 1e-37


def rewrite(model: onnx.ModelProto, changes: Iterable[Change]) -> None:
    """Writes the changes into the model's graph. The tensors keep their names; the file's own tensors are renamed."""
    for change in changes:
        (_rewrite_input if change.at == "input" else _rewrite_output)(model.graph, change)


def _rewrite_input(graph: onnx.GraphProto, change: Change) -> None:
    value = next(value for value in graph.input if value.name == change.actual.name)
    chain = _Chain(graph, change.actual.name)
    if change.steps:
        inner = chain.unique("as_exported")
        _rename(graph, value.name, inner)
        chain.add_layout(change, change.actual.shape[1:])
        if change.required.dtype != change.actual.dtype:
            chain.add("Cast", to=_TYPES[change.actual.dtype])
        chain.nodes[-1].output[0] = inner
        nodes = [*chain.nodes, *graph.node]
        del graph.node[:]
        graph.node.extend(nodes)
    _declare(value, change)


def _rewrite_output(graph: onnx.GraphProto, change: Change) -> None:
    value = next(value for value in graph.output if value.name == change.actual.name)
    chain = _Chain(graph, change.actual.name)
    if change.steps:
        chain.at = chain.unique("as_exported")
        _rename(graph, value.name, chain.at)
        if change.actual.dtype != change.required.dtype:
            chain.add("Cast", to=_TYPES[change.required.dtype])
        chain.add_layout(change, change.required.shape[1:])
        dtype = (
            np.float32 if change.required.dtype == "float32" else np.dtype(change.required.dtype)
        )
        if change.log:
            chain.add("Add", np.array(_TINY, dtype=dtype))
            chain.add("Log")
        if change.scaled:
            factor, shift = change.scaled
            chain.add("Mul", np.array(factor, dtype=dtype))
            chain.add("Add", np.array(shift, dtype=dtype))
        chain.nodes[-1].output[0] = value.name
        graph.node.extend(chain.nodes)
    _declare(value, change)


def write_reorder(graph: onnx.GraphProto, tensor: str, reorder: Reorder) -> None:
    """Puts an order of numbers into the graph, at an input or an output of this name."""
    value = next(value for value in (*graph.input, *graph.output) if value.name == tensor)
    is_input = value in graph.input
    chain = _Chain(graph, tensor)
    inner = chain.unique("as_exported")
    _rename(graph, tensor, inner)
    chain.at = tensor if is_input else inner
    sizes = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim[1:]]
    chain.add("Reshape", np.array([0, *reorder.shape], dtype=np.int64))  # 0 keeps the batch
    chain.add_gather(reorder)
    chain.add("Reshape", np.array([0, *sizes], dtype=np.int64))
    chain.nodes[-1].output[0] = inner if is_input else tensor
    nodes = [*chain.nodes, *graph.node] if is_input else [*graph.node, *chain.nodes]
    del graph.node[:]
    graph.node.extend(nodes)


class _Chain:
    """Nodes in a row, each on the output of the node before. Their names are new to the graph."""

    def __init__(self, graph: onnx.GraphProto, tensor: str) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.at = self._tensor = tensor
        self._graph = graph
        self._taken = {
            value.name
            for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info)
        }
        self._taken |= {name for node in graph.node for name in (node.name, *node.output)}

    def unique(self, ending: str) -> str:
        """Returns a name that is not in the graph."""
        name = f"{self._tensor}/{ending}"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def add(self, operator: str, constant: np.ndarray | None = None, **attributes: Any) -> None:
        """Adds a node on the last output, with `constant` as its second input."""
        inputs, name = [self.at], self.unique(operator.lower())
        if constant is not None:
            inputs.append(self.unique(f"{operator.lower()}_by"))
            self._graph.initializer.append(numpy_helper.from_array(constant, inputs[-1]))
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        self.at = name

    def add_layout(self, change: Change, target: Sequence[int | None]) -> None:
        """Adds a Transpose and a Reshape to a shape, batch apart, where the change needs them."""
        if change.order:
            self.add("Transpose", perm=[0, *(axis + 1 for axis in change.order)])
        if "Reshape" in change.steps:
            # 0 keeps the size of the batch
            self.add("Reshape", np.array([0, *target], dtype=np.int64))

    def add_gather(self, reorder: Reorder) -> None:
        """Adds a Gather."""
        self.add("Gather", np.array(reorder.indices, dtype=np.int64), axis=reorder.axis)


def _declare(value: onnx.ValueInfoProto, change: Change) -> None:
    """Declares the type and shape of a graph's input or output. The batch stays as it was."""
    before = value.type.tensor_type
    first = onnx.TensorShapeProto.Dimension()
    if before.HasField("shape") and len(before.shape.dim):
        first.CopyFrom(before.shape.dim[0])
    else:
        first.dim_param = "B"
    after = helper.make_tensor_value_info(
        value.name, _TYPES[change.required.dtype], list(change.required.shape)
    )
    after.type.tensor_type.shape.dim[0].CopyFrom(first)
    value.CopyFrom(after)


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Renames a tensor in the graph and its subgraphs. The graph's inputs and outputs keep their names."""
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                if name == old:
                    names[place] = new
        for attribute in node.attribute:
            for inside in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                if all(old != value.name for value in inside.input):
                    _rename(inside, old, new)
                    for value in inside.output:
                        if value.name == old:
                            value.name = new
    for value in graph.value_info:
        if value.name == old:
            value.name = new
