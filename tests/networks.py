"""Small networks made here: contracts with the fake, and ONNX files with random weights or logits of one's choosing."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import TensorProto, helper, numpy_helper, parser

from movemask.board.position import Elo, Position
from movemask.encoding import vocabularies
from movemask.encoding.encoders import plane_encoder
from movemask.network.contract import Contract
from movemask.network.model import Array, Batch, Model, TensorInfo, expected_tensors
from movemask.server.queue.pipeline import Pipeline

ONNX_TOML = """
[contract]
planes = "maia2-18"
vocabulary = "movemask-1880"
trained_with_mask = false

[inputs]
planes = "planes"

[outputs]
logits = "logits"

[outputs.value]
name = "value"
softmaxed = false
"""
NO_VALUE = ONNX_TOML.split("[outputs.value]")[0]


def write_fake(
    folder: Path,
    name: str = "fake",
    *,
    planes: str = "maia2-18",
    vocabulary: str = "movemask-1880",
    elo: bool = False,
    trained_with_mask: bool = False,
) -> Path:
    """A models folder with a random linear network without a value; its contract's file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.toml"
    encoder = plane_encoder(planes)
    ratings = [Tensor("elo_self"), Tensor("elo_opponent")] if elo else []
    logits = Tensor("logits", (len(vocabularies.vocabulary(vocabulary)),))
    write_named(folder / f"{name}.onnx", [Tensor("planes", encoder.shape, encoder.dtype), *ratings], [logits])
    text = NO_VALUE.replace('"maia2-18"', f'"{planes}"').replace('"movemask-1880"', f'"{vocabulary}"')
    text = text.replace("false", str(trained_with_mask).lower())
    inputs = "".join(f'{tensor.name} = "{tensor.name}"\n' for tensor in ratings)
    file.write_text(text.replace("[outputs]", f"{inputs}[outputs]"))
    return file


def contract(planes: str = "maia2-18", words: str = "movemask-1880", **sections: Any) -> Contract:
    """A contract with the usual names."""
    return Contract.model_validate(
        {
            "contract": {"planes": planes, "vocabulary": words, "trained_with_mask": False},
            "inputs": {"planes": "planes"},
            "outputs": {"logits": "logits"},
            **sections,
        }
    )


class FakeSession:
    """Logits from a checksum of each position's inputs: no file, no runtime."""

    runs = 1

    def __init__(self, terms: Contract) -> None:
        inputs, outputs = expected_tensors(terms)
        self.inputs: tuple[TensorInfo, ...] = tuple(inputs)
        self.outputs: tuple[TensorInfo, ...] = tuple(outputs)

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        columns = [np.ascontiguousarray(feeds[info.name]) for info in self.inputs]
        return [np.array([self.logits_of([column[row] for column in columns]) for row in range(len(columns[0]))])]

    def logits_of(self, inputs: Sequence[Array]) -> Array:
        seed = 0
        for array in inputs:
            seed = zlib.crc32(array.tobytes(), seed)
        return np.asarray(np.random.default_rng(seed).standard_normal(self.outputs[0].shape[1]) * 2, np.float32)


class FixedSession(FakeSession):
    """Always the given logits `[A]`, whatever the position: the way to hand the service a network that misbehaves."""

    def __init__(self, terms: Contract, logits: NDArray[np.floating]) -> None:
        super().__init__(terms)
        self.logits = logits

    def logits_of(self, inputs: Sequence[Array]) -> Array:
        return self.logits


def fake_model(name: str = "fake", **arguments: Any) -> Model:
    """A model on the fake."""
    terms = contract(**arguments)
    return Model(name, "sha256:" + "0" * 64, terms, FakeSession(terms))


def rated_model(**arguments: Any) -> Model:
    """A model on the fake that is given ratings from 800 to 2400."""
    inputs = {"planes": "planes", "elo_self": "self", "elo_opponent": "opponent"}
    return fake_model(inputs=inputs, elo={"default": 1400, "minimum": 800, "maximum": 2400}, **arguments)


def fixed_model(logits: NDArray[np.floating], name: str = "fixed") -> Model:
    """A model that always gives these logits."""
    terms = contract()
    return Model(name, "sha256:" + "1" * 64, terms, FixedSession(terms, logits))


def pipeline(model: Model, **settings: Any) -> Pipeline:
    """A pipeline on a model, without a recorder."""
    usual: dict[str, Any] = {"max_batch": 64, "max_waiting": 1024}
    return Pipeline(model, **{**usual, **settings})


def batch_of(model: Model, positions: Sequence[Position], elos: Sequence[Elo | None] = ()) -> Batch:
    """The positions as the model takes them, by python-chess's rules."""
    return model.whole_batch(positions, elos)


def write_onnx(file: Path, *, values: int = 3) -> None:
    """A random linear network for maia2-18 with a value of so many numbers."""
    write_named(file, [Tensor("planes", (18, 8, 8))], [Tensor("logits", (1880,)), Tensor("value", (values,))])


def write_net(folder: Path, name: str = "net", toml: str = ONNX_TOML, **arguments: Any) -> Path:
    """A models folder with such a network; its contract's file."""
    folder.mkdir(exist_ok=True)
    write_onnx(folder / f"{name}.onnx", **arguments)
    (folder / f"{name}.toml").write_text(toml)
    return folder / f"{name}.toml"


@dataclass(frozen=True)
class Tensor:
    """A name, a numpy dtype name and the sizes after the batch."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = "float32"


_DTYPES = {
    "float32": TensorProto.FLOAT,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}

#: For each of the first twelve planes what a piece on it is worth to the side to move.
MATERIAL = np.array([1, 3, 3, 5, 9, 0, -1, -3, -3, -5, -9, 0], dtype=np.float32)


def write_named(
    file: Path,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    softmaxed: str = "",
) -> None:
    """A random linear network with these inputs and outputs; the output named `softmaxed` holds probabilities."""
    rng = np.random.default_rng(1)
    constants: dict[str, ArrayLike] = {"flat": [0, -1], "axis": [1]}
    nodes, parts = [], []
    for tensor in inputs:
        size = math.prod(tensor.shape)
        weight = rng.normal(size=(size, 8)).astype(np.float32) * (0.1 if tensor.shape else 1e-4)
        constants[f"{tensor.name}/weight"] = weight
        nodes.append(helper.make_node("Cast", [tensor.name], [f"{tensor.name}/float"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Reshape", [f"{tensor.name}/float", "flat"], [f"{tensor.name}/flat"]))
        product = [f"{tensor.name}/flat", f"{tensor.name}/weight"]
        nodes.append(helper.make_node("MatMul", product, [f"{tensor.name}/part"]))
        parts.append(f"{tensor.name}/part")
    nodes.append(helper.make_node("Sum", parts, ["hidden"]))
    for tensor in outputs:
        size = math.prod(tensor.shape)
        constants[f"{tensor.name}/weight"] = rng.normal(size=(8, size)).astype(np.float32)
        wide = tensor.name if tensor.shape and tensor.name != softmaxed else f"{tensor.name}/wide"
        nodes.append(helper.make_node("MatMul", ["hidden", f"{tensor.name}/weight"], [wide]))
        if tensor.name == softmaxed:
            nodes.append(helper.make_node("Softmax", [wide], [tensor.name], axis=1))
        elif not tensor.shape:
            nodes.append(helper.make_node("Squeeze", [wide, "axis"], [tensor.name]))
    write_graph(file, nodes, inputs, outputs, constants)


def write_judge(file: Path, *, inverted: bool = False, for_white: bool = False, faults: Sequence[str] = ()) -> None:
    """A network for maia2-18 whose value counts material: win, draw, loss logits in `value`.

    `inverted` gives loss, draw, win; `for_white` tells White's outcome instead of the mover's, and reads lc0-112, which
    says who moves. `faults`: `blind` gives every position the same logits, `moody` other ones each time, `crowded` ones
    that depend on the rest of the batch, `nan` and `nan value` NaN for a mover who is behind in material, `rare nan`
    for one who is behind by more than 16 pawns.
    """
    rng = np.random.default_rng(2)
    planes = 112 if for_white else 18
    worth, black = np.zeros((2, planes, 64), dtype=np.float32)
    worth[:12] = MATERIAL[:, None] / 2
    black[108:109] = 1 / 64  # of lc0-112 alone
    spread = np.array([[-1, 0, 1]] if inverted else [[1, 0, -1]], dtype=np.float32)
    constants: dict[str, ArrayLike] = {
        "weight": rng.normal(size=(planes * 64, 8)).astype(np.float32) * (0 if "blind" in faults else 0.1),
        "slots": rng.normal(size=(8, 1880)).astype(np.float32),
        "worth": worth.reshape(-1, 1),
        "black": black.reshape(-1, 1),
        "spread": spread,
        "allowance": np.float32(8 if "rare nan" in faults else 0),
        "minus_two": np.float32(-2),
        "one": np.float32(1),
        "axis": np.array([0]),
    }
    steps = [
        "flat = Flatten(planes)",
        "hidden = MatMul(flat, weight)",
        "plain = MatMul(hidden, slots)",
        "balance = MatMul(flat, worth)",
        "is_black = MatMul(flat, black)",
        "turned = Mul(is_black, minus_two)",
        "sign = Add(turned, one)",
        "white_balance = Mul(balance, sign)",
        "ahead = Add(balance, allowance)",
        "root = Sqrt(ahead)",
        f"value = MatMul({'root' if 'nan value' in faults else 'white_balance' if for_white else 'balance'}, spread)",
    ]
    if "moody" in faults:
        steps += ["noise = RandomNormalLike(plain)", "logits = Add(plain, noise)"]
    elif "crowded" in faults:
        steps += ["mean = ReduceMean <keepdims = 1> (plain, axis)", "logits = Sub(plain, mean)"]
    else:
        steps += ["logits = Add(plain, root)" if {"nan", "rare nan"} & {*faults} else "logits = Identity(plain)"]
    outputs = [Tensor("logits", (1880,)), Tensor("value", (3,))]
    write_graph(file, [*map(parser.parse_node, steps)], [Tensor("planes", (planes, 8, 8))], outputs, constants)


def write_masking(file: Path, dtype: str) -> None:
    """A network for maia2-18 that takes the legal mask, and lowers the logits of all other slots by 100 itself."""
    rng = np.random.default_rng(4)
    constants: dict[str, ArrayLike] = {
        "weight": rng.normal(size=(18 * 64, 1880)).astype(np.float32) * 0.1,
        "hundred": np.float32(100),
    }
    steps = [
        "flat = Flatten(planes)",
        "plain = MatMul(flat, weight)",
        "legal = Cast <to = 1> (mask)",
        "raised = Mul(legal, hundred)",
        "logits = Add(plain, raised)",
    ]
    inputs = [Tensor("planes", (18, 8, 8)), Tensor("mask", (1880,), dtype)]
    write_graph(file, [*map(parser.parse_node, steps)], inputs, [Tensor("logits", (1880,))], constants)


def write_loop(file: Path, rounds: int = 2**63 - 1) -> None:
    """A network for maia2-18 that loops so often in each run; by default it never ends one."""
    constants: dict[str, ArrayLike] = {
        "rounds": rounds,
        "yes": True,
        "weight": np.random.default_rng(3).normal(size=(18 * 64, 1880)).astype(np.float32),
    }
    inside = "again (int64 i, bool go, float[] x) => (bool on, float[] next) { on = Identity(go) next = Tanh(x) }"
    loop = f"ended = Loop <body = {inside}> (rounds, yes, flat)"
    steps = ["flat = Flatten(planes)", loop, "logits = MatMul(ended, weight)"]
    write_graph(
        file, [*map(parser.parse_node, steps)], [Tensor("planes", (18, 8, 8))], [Tensor("logits", (1880,))], constants
    )


def write_graph(
    file: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    constants: Mapping[str, ArrayLike],
) -> None:
    """An ONNX file of these nodes and constants."""
    input_infos = [helper.make_tensor_value_info(t.name, _DTYPES[t.dtype], ["batch", *t.shape]) for t in inputs]
    output_infos = [helper.make_tensor_value_info(t.name, TensorProto.FLOAT, ["batch", *t.shape]) for t in outputs]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(list(nodes), "made", input_infos, output_infos, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file)
