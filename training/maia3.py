"""Maia-3's ONNX file → a models folder: `python -m training.maia3 maia3-5m.onnx FOLDER`

`maia3-5m`, in floats and with a contract, is measured beside ours. `maia3-5m.teacher.onnx`, in dynamic 8-bit integers,
is the teacher: on 640 positions KL 0.0010 from the floats at half the time. Its integers depend on what else is in the
batch, so the service would refuse it. The file given takes one position at a time and whole ratings; here the batch is
free and ratings come as floats, as the service sends them.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import onnx
import tomlkit
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

TEACHER = "maia3-5m.teacher.onnx"
RATINGS = ("self_elo", "oppo_elo")
LICENCE = "AGPL-3.0"
SOURCE = "Maia-3 with 5 million parameters, UofTCSSLab/Maia3-5M, github.com/CSSLab/maia3"


def prepare(file: Path, folder: Path) -> None:
    """Writes both networks."""
    folder.mkdir(parents=True, exist_ok=True)
    floats = folder / "maia3-5m.onnx"
    network = onnx.load(str(file))
    free_batch(network)
    onnx.save(network, str(floats))
    floats.with_suffix(".toml").write_text(_contract(floats))
    quantize_dynamic(
        str(floats),
        str(folder / TEACHER),
        weight_type=QuantType.QInt8,
        per_channel=True,
        op_types_to_quantize=["MatMul"],
    )


def free_batch(network: onnx.ModelProto) -> None:
    """Frees the batch dimension of 1, which Reshape nodes hold too, and makes the ratings floats."""
    graph = network.graph
    shapes = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    for tensor in _constants(graph):
        if tensor.name not in shapes:
            continue
        shape = numpy_helper.to_array(tensor).copy()
        if shape.size and shape[0] == 1 and -1 not in shape:
            shape[0] = -1
            tensor.CopyFrom(numpy_helper.from_array(shape, tensor.name))
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del graph.value_info[:]  # shapes of a batch of 1
    for value in graph.input:
        if value.name in RATINGS:
            whole = f"{value.name}_whole"
            for node in graph.node:
                node.input[:] = [whole if name == value.name else name for name in node.input]
            value.type.tensor_type.elem_type = TensorProto.FLOAT
            graph.node.insert(0, helper.make_node("Cast", [value.name], [whole], to=TensorProto.INT64))


def _constants(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    found = list(graph.initializer)
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            node.attribute[0].t.name = node.output[0]
            found.append(node.attribute[0].t)
    return found


def _contract(file: Path) -> str:
    return tomlkit.dumps(
        {
            "network": {"file": file.name, "digest": "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()},
            "contract": {"planes": "maia3-tokens-96", "vocabulary": "maia3-4352", "trained_with_mask": False},
            "inputs": {"planes": "tokens", "elo_self": RATINGS[0], "elo_opponent": RATINGS[1]},
            "outputs": {
                "logits": "logits_move",
                "value": {"name": "logits_value", "order": "loss_draw_win", "softmaxed": False},
            },
            "elo": {"default": 1500, "minimum": 600, "maximum": 2600, "scale": "lichess"},
            "card": {"source": SOURCE, "licence": LICENCE},
        }
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Maia-3's ONNX file -> a models folder that serves it")
    parser.add_argument("file", type=Path, help="maia3-5m.onnx, with its weights beside it")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    prepare(arguments.file, arguments.folder)


if __name__ == "__main__":
    main()
