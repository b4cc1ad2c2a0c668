"""Integer networks: 8-bit weights and 16-bit sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from movemask.network.files import shipped_models
from movemask.network.onnx import OnnxSession

LARGEST_INPUT, LARGEST_SUM = 255, 32_767  # of unsigned 8-bit integers, of signed 16-bit ones


def test_shared_8_bit_weights_load(tmp_path: Path) -> None:
    """With `session.x64quantprecision` onnxruntime refused it, on processors without VNNI."""
    size = 64
    constants = {
        "weights": np.full((size, size), 127, np.int8),
        "scale": np.float32(1),
        "scales": np.ones(size, np.float32),
        "zero": np.uint8(0),
        "zeros": np.zeros(size, np.int8),
    }
    inputs = ["weights", "scale", "scales", "zero", "zeros"]
    nodes = [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["integers"])]
    nodes += [
        helper.make_node("MatMulIntegerToFloat", ["integers", *inputs], [y], domain="com.microsoft") for y in ("y", "z")
    ]
    shape = ("batch", size)
    graph = helper.make_graph(
        nodes,
        "integers",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, shape) for y in ("y", "z")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    file = tmp_path / "integers.onnx"
    file.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    for y in OnnxSession(file, threads=1).run({"x": np.ones((4, size), np.float32)}, ["y", "z"]):
        assert np.unique(y).tolist() == [127 * size]


def test_shipped_network_sums_fit_16_bits() -> None:
    """Processors without VNNI add two products in 16 bits. These are all products of integers in the file."""
    (file,) = shipped_models().glob("*.onnx")
    graph = onnx.load(str(file)).graph
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    products = [node for node in graph.node if "Integer" in node.op_type]
    assert {node.op_type for node in products} == {"MatMulIntegerToFloat"}
    for node in products:
        weights, zeros = known[node.input[1]], known[node.input[5]]
        assert weights.dtype == np.int8
        assert not zeros.any()
        assert 2 * LARGEST_INPUT * int(np.abs(weights.astype(int)).max()) <= LARGEST_SUM, node.input[1]
