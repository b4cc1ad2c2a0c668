"""`models add` for networks of no known family: flags, contracts beside the file, skeletons, orders, large weights."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import chess
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from movemask.board.position import Position
from movemask.encoding.encoders import plane_encoder
from movemask.encoding.vocabularies import FROM_TO, vocabulary
from movemask.network.model import Model
from movemask.network.registry import load_entry
from movemask.network_tools.alternatives import reorderings
from tests.networks import Tensor, write_named
from tests.processes import run

FENS = (chess.STARTING_FEN, "r3k2r/pppq1ppp/2npbn2/2b1p3/2B1P3/2NPBN2/PPPQ1PPP/R3K2R b KQkq - 7 8")
LC0 = Tensor("x", (112, 8, 8))


def added(file: Path, folder: Path, *options: object) -> str:
    result = run("models", "add", "--force", file, "--models-dir", folder, *options)
    assert result.exit_code == 0, result.output
    return result.output


def model_of(folder: Path, name: str = "net") -> Model:
    entry = load_entry(folder / f"{name}.toml", threads=1)
    assert entry.model is not None, entry.failure
    return entry.model


def policy(model: Model, fen: str) -> dict[int, float]:
    """The served logits of the legal slots."""
    batch = model.whole_batch([Position.read(fen)])
    return dict(zip(batch.slots.tolist(), model.run(batch).logits[0, batch.slots].tolist(), strict=True))


def logits(
    file: Path, planes: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """The first output of a network, by onnxruntime alone."""
    session = ort.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {session.get_inputs()[0].name: planes[None]})[0][0])


@pytest.mark.parametrize("words", ["alphazero-4672", "uci-1968"])
def test_planes_and_vocabulary_of_two_families_are_guessed(words: str, tmp_path: Path) -> None:
    write_named(tmp_path / "net.onnx", [LC0], [Tensor("policy", (len(vocabulary(words)),))])
    output = added(tmp_path / "net.onnx", tmp_path / "m")
    assert "a network of no known family: inputs x float32 [B, 112, 8, 8]; outputs policy" in output
    terms = model_of(tmp_path / "m").contract.terms
    assert (terms.planes, terms.vocabulary) == ("lc0-112", words)


def test_vocabulary_and_perspective_are_flags(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    write_named(file, [Tensor("x", (18, 8, 8))], [Tensor("policy", (4096,))])
    refused = run("models", "add", "--force", file, "--models-dir", tmp_path / "m")
    assert refused.exit_code == 1
    assert f"say which with --vocabulary: {', '.join(sorted(FROM_TO))}" in refused.output
    (tmp_path / "net.toml").unlink()
    added(file, tmp_path / "m", "--vocabulary", "from-to-4096-by-file", "--perspective", "white")
    model = model_of(tmp_path / "m")
    assert model.contract.terms.vocabulary == "from-to-4096-by-file-white"
    assert model.contract.terms.promotions == "queen-only"
    for fen in FENS:
        raw = logits(file, plane_encoder("maia2-18").encode(Position.read(fen)))
        assert policy(model, fen) == {slot: pytest.approx(raw[slot], rel=1e-5) for slot in policy(model, fen)}


def test_file_of_moves_is_copied_beside_the_network(tmp_path: Path) -> None:
    moves = [name for name in vocabulary("movemask-1880").names() if name[4:] in ("", "q")][:1500]
    (tmp_path / "moves.txt").write_text("\n".join(moves))
    file = tmp_path / "net.onnx"
    write_named(file, [LC0], [Tensor("policy", (1500,))])
    output = added(file, tmp_path / "m", "--vocabulary", tmp_path / "moves.txt", "--perspective", "side_to_move")
    assert "incomplete = true: 380 moves have no slot, such as " in output
    assert (tmp_path / "m" / "net.txt").read_text().split() == moves
    assert model_of(tmp_path / "m").vocabulary.names() == tuple(moves)
    missing = run("models", "add", file, "--models-dir", tmp_path / "n", "--vocabulary", tmp_path / "moves.txt")
    assert "--perspective: a file of moves needs it" in missing.output


def test_skeleton_is_written_completed_and_read(tmp_path: Path) -> None:
    file, contract = tmp_path / "mine.onnx", tmp_path / "mine.toml"
    write_named(file, [Tensor("board", (18, 8, 8))], [Tensor("move", (1880,)), Tensor("wdl", (3,))])
    file_of_17 = tmp_path / "other.onnx"
    write_named(file_of_17, [Tensor("board", (17, 8, 8))], [Tensor("move", (1880,))])
    refused = run("models", "add", file_of_17, "--models-dir", tmp_path / "m")
    assert refused.exit_code == 1
    assert "complete line 2 (planes) and line 3 (vocabulary), and run `movemask models add other.onnx` again" in (
        refused.output
    )
    assert "judged by the check (tensors, outputs, batches, value) and by a quick look at play" in refused.output
    text = (tmp_path / "other.toml").read_text()
    assert "# one of maia2-1880, movemask-1880: output 'move' is float32 [B, 1880]" in text
    tomllib.loads(text)
    again = run("models", "add", file_of_17, "--models-dir", tmp_path / "m")
    assert "contract.planes: no plane encoder '?'; available: fen-77" in again.output
    contract.write_text(text.replace('planes = "?"', 'planes = "maia2-18"', 1).replace('"?"', '"movemask-1880"'))
    output = added(file, tmp_path / "m")
    assert "its contract is mine.toml, beside it" in output
    assert model_of(tmp_path / "m", "mine").contract.terms.vocabulary == "movemask-1880"


def test_check_takes_a_quick_look_at_a_written_contract(tmp_path: Path) -> None:
    write_named(tmp_path / "net.onnx", [LC0], [Tensor("policy", (1858,))])
    (tmp_path / "net.toml").write_text(
        '[contract]\nplanes = "lc0-112"\nvocabulary = "lc0-1858"\ntrained_with_mask = false\n'
        '[inputs]\nplanes = "x"\n[outputs]\nlogits = "policy"\n'
    )
    checked = run("models", "check", "net", "--models-dir", tmp_path)
    assert "net: keeps its contract" in checked.output
    assert "It is READ WRONGLY, or untrained." in checked.output
    assert "`movemask models check net --diagnose` says why" in checked.output
    (result,) = json.loads(run("models", "check", "--models-dir", tmp_path, "--json").output)["models"]
    assert result["quick_look"]["verdict"] == "wrong"


@pytest.mark.parametrize(
    "name",
    ["planes transposed", "history planes oldest first", "slots in alphabetical order"],
)
def test_reorder_puts_the_order_into_the_network(name: str, tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    write_named(file, [LC0], [Tensor("policy", (1858,))])
    added(file, tmp_path / "m")
    model = model_of(tmp_path / "m")
    output = added(tmp_path / "m" / "net.onnx", tmp_path / "m", "--replace", "--reorder", name)
    assert f"put into the graph: {name}" in output
    changed = model_of(tmp_path / "m")
    batch = model.whole_batch([Position.read(fen, ["e2e4"]) if fen == FENS[0] else Position.read(fen) for fen in FENS])
    orders = reorderings(model.contract)[name]
    planes = {name: orders.get(name, lambda array: array)(array) for name, array in model.feeds(batch).items()}
    (expected,) = model.session.run(planes, ["policy"])
    (actual,) = changed.session.run(changed.feeds(batch), ["policy"])
    assert np.allclose(actual, orders.get("policy", lambda array: array)(expected), atol=1e-5)
    unknown = run("models", "add", file, "--models-dir", tmp_path / "n", "--reorder", "planes sideways", "--force")
    assert (
        "--reorder: no 'planes sideways' for this network; there are: planes mirrored left to right; " in unknown.output
    )


def test_quantize_dynamic_is_named(tmp_path: Path) -> None:
    """Its numbers depend on the batch, and the refusal did not say why."""
    weight = np.random.default_rng(1).normal(size=(112 * 64, 1858)).astype(np.float32)
    scale = np.float32(np.abs(weight).max() / 127)
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("DynamicQuantizeLinear", ["flat"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["float", "s"], ["scaled"]),
        helper.make_node("Mul", ["scaled", "ws"], ["policy"]),
    ]
    constants = {"w": np.round(weight / scale).astype(np.int8), "ws": scale}
    graph = helper.make_graph(
        nodes,
        "int8",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 112, 8, 8])],
        [helper.make_tensor_value_info("policy", TensorProto.FLOAT, ["b", 1858])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "net.onnx"
    )
    refused = run("models", "add", "--force", tmp_path / "net.onnx", "--models-dir", tmp_path / "m")
    assert refused.exit_code == 1
    assert re.search(
        r"different logits alone than in a batch of 8: .*; quantize_dynamic does that: use quantize_static",
        (refused.output),
    )


@pytest.mark.deep
def test_weights_over_2_gib_stay_in_a_file_of_their_own(tmp_path: Path) -> None:
    """2.4 GB; loading them takes some minutes and 8 GB of memory."""
    hidden = 66_500
    rng, size = np.random.default_rng(1), 112 * 64
    file, weights = tmp_path / "huge.onnx", tmp_path / "weights.bin"
    parts = {"w": (size, hidden), "u": (hidden, 1858)}
    offsets, first = {}, rng.normal(size=(64, hidden)).astype(np.float32) * 0.05
    second = rng.normal(size=(64, 1858)).astype(np.float32) * 0.01
    with open(weights, "wb") as stream:
        for name, (rows, _) in parts.items():
            offsets[name] = stream.tell()
            for row in range(rows):
                stream.write((first if name == "w" else second)[row % 64].tobytes())
    tensors = []
    for name, (rows, columns) in parts.items():
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[rows, columns])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": weights.name, "offset": offsets[name], "length": rows * columns * 4}.items():
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["hidden"]),
        helper.make_node("Tanh", ["hidden"], ["bent"]),
        helper.make_node("MatMul", ["bent", "u"], ["policy"]),
    ]
    graph = helper.make_graph(
        nodes,
        "huge",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 112, 8, 8])],
        [helper.make_tensor_value_info("policy", TensorProto.FLOAT, ["b", 1858])],
        tensors,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file)
    assert weights.stat().st_size > 2**31
    output = added(file, tmp_path / "m")
    assert "huge.onnx has 2.4 GB; its check takes up to " in output
    assert {path.name for path in (tmp_path / "m").iterdir()} == {"huge.onnx", "huge.onnx.data", "huge.toml", "default"}
    model = model_of(tmp_path / "m", "huge")
    for fen in FENS:
        planes = plane_encoder("lc0-112").encode(Position.read(fen)).reshape(-1)
        bent = np.tanh(planes.reshape(-1, 64).sum(0) @ first)
        whole = np.array([bent[row::64].sum() for row in range(64)]) @ second
        own = policy(model, fen)
        assert own == {slot: pytest.approx(whole[slot], rel=1e-3, abs=1e-3) for slot in own}
    exported = run("models", "export-onnx", "huge", tmp_path / "out.onnx", "--models-dir", tmp_path / "m")
    assert "huge has several files, which no ONNX file can hold: copy huge.onnx, huge.onnx.data, huge.toml" in (
        exported.output
    )
    with open(tmp_path / "m" / "huge.onnx.data", "r+b") as stream:
        stream.write(b"\x01")
    assert "network.digest: says " in str(load_entry(tmp_path / "m" / "huge.toml", 1).failure)
