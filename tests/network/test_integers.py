"""What a user would lose: the same answers of an 8-bit network on every processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from movemask.network.onnx import OnnxSession


def test_products_of_integers_are_exact(tmp_path: Path) -> None:
    """The largest products. Processors without VNNI add two of them in 16 bits, which cut 64,770 off at 32,767."""
    size = 64
    weights = np.full((size, size), 127, np.int8)
    constants = {
        "weights": weights,
        "scale": np.float32(1),
        "scales": np.ones(size, np.float32),
        "zero": np.uint8(0),
        "zeros": np.zeros(size, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["integers"]),
        helper.make_node(
            "MatMulIntegerToFloat",
            ["integers", "weights", "scale", "scales", "zero", "zeros"],
            ["y"],
            domain="com.microsoft",
        ),
    ]
    shape = ("batch", size)
    graph = helper.make_graph(
        nodes,
        "integers",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    file = tmp_path / "integers.onnx"
    file.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    (y,) = OnnxSession(file, threads=1).run({"x": np.full((4, size), 255, np.float32)}, ["y"])
    assert np.unique(y).tolist() == [255 * 127 * size]
