"""Small networks made here: contracts with the fake, and ONNX files with random weights or logits of one's choosing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from service.encoding.planes import plane_encoder
from service.encoding.vocabularies import vocabulary
from service.inference.batcher import Batcher
from service.inference.contract import Contract
from service.inference.model import Model, expected_tensors
from service.inference.session import Array, FakeSession, TensorInfo

FAKE_TOML = """
[network]
backend = "fake"

[contract]
planes = "{planes}"
vocabulary = "{vocabulary}"
trained_with_mask = {trained_with_mask}

[inputs]
planes = "planes"
{inputs}

[outputs]
logits = "logits"
"""


def write_fake(
    folder: Path,
    name: str = "fake",
    *,
    planes: str = "movemask-18",
    vocabulary: str = "movemask-1880",
    elo: bool = False,
    trained_with_mask: bool = False,
) -> Path:
    """A models folder with a contract for the fake."""
    folder.mkdir(parents=True, exist_ok=True)
    inputs = 'elo_self = "elo_self"\nelo_opponent = "elo_opponent"' if elo else ""
    file = folder / f"{name}.toml"
    masked = str(trained_with_mask).lower()
    file.write_text(FAKE_TOML.format(planes=planes, vocabulary=vocabulary, inputs=inputs, trained_with_mask=masked))
    return file


def contract(planes: str = "movemask-18", words: str = "movemask-1880", **sections: Any) -> Contract:
    """A contract with the usual names."""
    return Contract.model_validate(
        {
            "contract": {"planes": planes, "vocabulary": words, "trained_with_mask": False},
            "inputs": {"planes": "planes"},
            "outputs": {"logits": "logits"},
            **sections,
        }
    )


def fake_model(name: str = "fake", **arguments: Any) -> Model:
    """A model on the fake."""
    terms = contract(**arguments)
    inputs, outputs = expected_tensors(terms)
    return Model(name, "sha256:" + "0" * 64, terms, FakeSession(inputs, outputs[0]))


class FixedSession:
    """Always the given logits `[A]`, whatever the position: the way to hand the service a network that misbehaves."""

    def __init__(self, terms: Contract, logits: NDArray[np.floating]) -> None:
        inputs, outputs = expected_tensors(terms)
        self.inputs: tuple[TensorInfo, ...] = tuple(inputs)
        self.outputs: tuple[TensorInfo, ...] = tuple(outputs)
        self.logits = logits

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        rows = len(next(iter(feeds.values())))
        return [np.tile(self.logits, (rows, 1))]


def fixed_model(logits: NDArray[np.floating], name: str = "fixed") -> Model:
    """A model that always gives these logits."""
    terms = contract()
    return Model(name, "sha256:" + "1" * 64, terms, FixedSession(terms, logits))


def batcher(model: Model) -> Batcher:
    return Batcher(model, max_batch=64, max_waiting=1024)


_KINDS = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32}


def write_onnx(
    file: Path,
    planes: str = "movemask-18",
    words: str = "movemask-1880",
    *,
    slots: int | None = None,
    fixed_batch: int | None = None,
    poison: float | None = None,
) -> None:
    """A random linear network: flatten → 8 → A, and a value of three logits; `poison` is added to every logit."""
    rng = np.random.default_rng(0)
    encoder, size = plane_encoder(planes), slots or len(vocabulary(words))

    def constant(name: str, array: NDArray[Any]) -> onnx.TensorProto:
        return numpy_helper.from_array(array.astype(np.float32), name)

    weights = [
        constant("w1", rng.normal(size=(math.prod(encoder.shape), 8)) * 0.1),
        constant("w2", rng.normal(size=(8, size))),
        constant("w3", rng.normal(size=(8, 3))),
        constant("bias", np.full(size, 0.0 if poison is None else poison)),
    ]
    nodes = [
        helper.make_node("Cast", ["planes"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["numbers"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w1"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "w2"], ["linear"]),
        helper.make_node("Add", ["linear", "bias"], ["logits"]),
        helper.make_node("MatMul", ["hidden", "w3"], ["value"]),
    ]
    batch: Any = fixed_batch or "batch"
    inputs = [helper.make_tensor_value_info("planes", _KINDS[encoder.dtype], [batch, *encoder.shape])]
    outputs = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, size]),
        helper.make_tensor_value_info("value", TensorProto.FLOAT, [batch, 3]),
    ]
    graph = helper.make_graph(nodes, "linear", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file)


ONNX_TOML = """
[contract]
planes = "movemask-18"
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
