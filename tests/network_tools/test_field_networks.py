"""Exports from public reports: read, or refused with the cause.

`tests/data/field/network-cases.jsonl` has the cases and where each is from; the files are made here.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import zstandard
from onnx import TensorProto, helper, numpy_helper, parser

from movemask.board.position import Position
from movemask.evaluate import evaluate_positions
from movemask.network.model import Model
from movemask.network_tools.installation import Choices, add_onnx, import_lc0
from tests.conftest import ROOT
from tests.networks import Tensor, write_fake, write_graph, write_judge, write_named
from tests.processes import contents, run
from tests.weight_files import WeightFile

FIELD = ROOT / "tests" / "data" / "field"
MAIA = ROOT.parent / "shared" / "maia1"
LC0, POLICY, WDL = Tensor("/input/planes", (112, 8, 8)), Tensor("/output/policy", (1858,)), Tensor("/output/wdl", (3,))
FENS = (
    "r3k2r/pppq1ppp/2npbn2/2b1p3/2B1P3/2NPBN2/PPPQ1PPP/R3K2R b KQkq - 7 8",
    "1n5k/P4ppp/8/3pP3/8/8/1p3PPP/2N4K w - d6 0 30",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_fake(tmp_path / "m", "first")
    return tmp_path / "m"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIELD / name).read_text(encoding="utf-8").splitlines()]


def good(file: Path) -> None:
    write_named(file, [LC0], [POLICY, WDL], softmaxed=WDL.name)


def changed(change: Callable[[onnx.ModelProto], object], make: Callable[[Path], None] = good) -> Callable[[Path], None]:
    def write(file: Path) -> None:
        make(file)
        model = onnx.load(file)
        change(model)
        file.write_bytes(model.SerializeToString())

    return write


def without_sizes(model: onnx.ModelProto) -> None:
    for number, value in enumerate((*model.graph.input, *model.graph.output)):
        for place, dimension in enumerate(value.type.tensor_type.shape.dim):
            dimension.dim_param = f"axis{number}_{place}"


def without_shapes(model: onnx.ModelProto) -> None:
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")


def without_batch(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim.pop(0)


def linear(*steps: str) -> Callable[[Path], None]:
    """A network of lc0's planes whose `flat` these steps make."""
    weight = np.random.default_rng(1).normal(size=(112 * 64, 1858)).astype(np.float32)
    nodes = [*map(parser.parse_node, steps), parser.parse_node("p = MatMul(flat, weight)")]
    constants = {"weight": weight, "row": np.array([1, -1])}
    return lambda file: write_graph(file, nodes, [Tensor("planes", (112, 8, 8))], [Tensor("p", (1858,))], constants)


def float64(file: Path) -> None:
    steps = ["y = Conv <pads = [1, 1, 1, 1]> (planes, kernel)", "flat = Flatten(y)", "p = MatMul(flat, weight)"]
    constants = {"kernel": np.zeros((1, 112, 3, 3)), "weight": np.zeros((64, 1858))}
    write_graph(file, [*map(parser.parse_node, steps)], [Tensor("planes", (112, 8, 8))], [], constants)
    model = onnx.load(file)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    model.graph.output.append(helper.make_tensor_value_info("p", TensorProto.DOUBLE, ["b", 1858]))
    file.write_bytes(model.SerializeToString())


def maia2(dtype: str) -> Callable[[Path], None]:
    inputs = [Tensor("boards", (18, 8, 8)), Tensor("elo_self", (), dtype), Tensor("elo_oppo", (), dtype)]
    return lambda file: write_named(file, inputs, [Tensor("logits_maia", (1880,))])


def archive(*members: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for member in members:
            packed.writestr(member, "x" * 100)
    return out.getvalue()


def content(make: Callable[[Path], object]) -> Callable[[Path], bytes]:
    def read(file: Path) -> bytes:
        make(file)
        return file.read_bytes()

    return read


def lc0_file(file: Path, **changed: int) -> None:
    WeightFile().write(file.parent, file.name, changed=changed)


ONNX, PB = content(good), content(lc0_file)
HTML = b'\r\n<!DOCTYPE html>\n<html lang="en"><head><title>maia-chess at GitHub</title></head></html>\n'
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a" * 16 + b"\nsize 22345678\n"
#: PyTorch's old form: pickles of its magic number, a version, and the rest.
TORCH = b"".join(pickle.dumps(one, protocol=2) for one in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))


def typed(dtype: int, at: str = "input", make: Callable[[Path], None] = good) -> Callable[[Path], None]:
    """A network whose first input or output has another type, which it casts from or to its own."""

    def change(model: onnx.ModelProto) -> None:
        cast(model, at, 0, dtype)

    return changed(change, make)


def cast(model: onnx.ModelProto, at: str, place: int, dtype: int) -> None:
    value = getattr(model.graph, at)[place]
    name, own = value.name, value.type.tensor_type.elem_type
    inner = f"own {name}"
    for node in model.graph.node:
        for names in (node.input, node.output):
            for index, used in enumerate(names):
                if used == name:
                    names[index] = inner
    ends = ([name], [inner]) if at == "input" else ([inner], [name])
    node = helper.make_node("Cast", *ends, to=own if at == "input" else dtype)
    model.graph.node.insert(0 if at == "input" else len(model.graph.node), node)
    value.type.tensor_type.elem_type = dtype


FILES: dict[str, Callable[[Path], bytes]] = {
    "good": ONNX,
    "ir": content(changed(lambda model: setattr(model, "ir_version", 99))),
    "opset": content(changed(lambda model: setattr(model.opset_import[0], "version", 99))),
    "float64-conv": content(float64),
    "no-domain": content(changed(lambda model: model.ClearField("producer_name"))),
    "all-dynamic": content(changed(without_sizes)),
    "no-shapes": content(changed(without_shapes, linear("flat = Flatten(planes)"))),
    "no-batch": content(changed(without_batch, linear("flat = Reshape(planes, row)"))),
    "maia2-int32": content(maia2("int32")),
    "maia2-float": content(maia2("float32")),
    "pgx-int8": content(
        typed(
            TensorProto.INT8,
            make=lambda file: write_named(file, [Tensor("x", (8, 8, 119))], [Tensor("p", (4672,))]),
        )
    ),
    "uint8-policy": content(typed(TensorProto.UINT8, "output")),
    "lc0": PB,
    "lc0-hash": PB,
    "lc0-unpacked": lambda file: gzip.decompress(PB(file)),
    "lc0-attention": content(lambda file: lc0_file(file, policy=3)),
    "html": lambda _: HTML,
    "lfs": lambda _: LFS,
    "torch": lambda _: archive("model/data.pkl", "model/data/0", "model/version"),
    "torch-old": lambda _: TORCH,
    "zip": lambda _: archive("README.md", "nets/small.onnx"),
    "zip-lc0": lambda _: archive("maia-1500.pb.gz"),
    "good-gz": lambda file: gzip.compress(ONNX(file)),
    "good-bz2": lambda file: bz2.compress(ONNX(file)),
    "good-zst": lambda file: zstandard.compress(ONNX(file)),
    "lc0-zst": lambda file: zstandard.compress(gzip.decompress(PB(file))),
    "html-gz": lambda _: gzip.compress(HTML),
    "empty": lambda _: b"",
    "cut": lambda file: ONNX(file)[:5000],
    "safetensors": lambda _: (60).to_bytes(8, "little") + b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
    "json": lambda _: b'{"error":"Repository not found"}',
    "hdf5": lambda _: b"\x89HDF\r\n\x1a\n" + bytes(100),
}


@pytest.mark.parametrize("case", rows("network-cases.jsonl"), ids=lambda case: case["case"])
def test_field_files_are_read_or_named(case: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    file = tmp_path / case.get("name", "net.onnx")
    file.write_bytes(FILES[case["made"]](file))
    before = contents(folder)
    named = [] if "name" in case else ["--name", "net"]
    result = run("models", case["command"], "--force", file, *named, "--models-dir", folder)
    assert result.exit_code == case["code"], result.output
    for words in case["says"]:
        assert words in result.output
    for words in case.get("never", []):
        assert words not in result.output
    if case["code"]:
        assert len(result.output.strip().splitlines()) == 1
        assert contents(folder) == before
    else:
        assert "net: keeps its contract" in run("models", "check", "net", "--models-dir", folder).output


def policies(model: Model | None) -> list[np.ndarray]:
    assert model is not None
    evaluated = evaluate_positions(model, [Position.read(fen) for fen in FENS], [None] * len(FENS))
    assert evaluated.value is None or np.isfinite(evaluated.value).all()
    return [evaluated.policies.probabilities]


def moved(model: onnx.ModelProto, at: str, order: Sequence[int], shape: Sequence[int]) -> None:
    """The first input or output as another exporter lays it out: `order` of its own axes, then `shape`."""
    graph = model.graph
    value = getattr(graph, at)[0]
    name, own = value.name, [size.dim_value for size in value.type.tensor_type.shape.dim][1:]
    inner, wide = f"own {own} {name}", f"wide {own}"
    for node in graph.node:
        for names in (node.input, node.output):
            for index, used in enumerate(names):
                if used == name:
                    names[index] = inner
    parts = [own[axis] for axis in order]
    if at == "input":
        back = np.argsort(order)
        nodes = [
            helper.make_node("Reshape", [name, wide], ["apart"]),
            helper.make_node("Transpose", ["apart"], [inner], perm=[0, *(int(axis) + 1 for axis in back)]),
        ]
        graph.initializer.append(numpy_helper.from_array(np.array([0, *parts]), wide))
    else:
        nodes = [
            helper.make_node("Transpose", [inner], [f"turned {own}"], perm=[0, *(axis + 1 for axis in order)]),
            helper.make_node("Reshape", [f"turned {own}", wide], [name]),
        ]
        graph.initializer.append(numpy_helper.from_array(np.array([0, *shape]), wide))
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest] if at == "input" else [*rest, *nodes])
    value.CopyFrom(helper.make_tensor_value_info(name, value.type.tensor_type.elem_type, ["b", *shape]))


def pgx(file: Path) -> None:
    write_named(file, [Tensor("obs", (8, 8, 119))], [Tensor("policy", (4672,)), Tensor("v", (1,))])


def pgx_by_plane(file: Path) -> None:
    """The same with its policy as `[B, 8, 8, 73]`."""
    pgx(file)
    model = onnx.load(file)
    moved(model, "output", [0], [8, 8, 73])
    file.write_bytes(model.SerializeToString())


def maia3(file: Path) -> None:
    inputs = [Tensor("tokens", (64, 12)), Tensor("elo_self"), Tensor("elo_oppo")]
    write_named(file, inputs, [Tensor("logits_move", (4352,)), Tensor("logits_value", (3,))])


F16, BF16, F64 = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE
#: Name: a network that needs no change, the same as another exporter wrote it, and what the report says.
TWINS: dict[str, tuple[Callable[[Path], None], Callable[[onnx.ModelProto], object], str]] = {
    "N02 float16 planes": (good, lambda m: cast(m, "input", 0, F16), "'/input/planes': Cast to float16"),
    "N02 bfloat16 planes": (good, lambda m: cast(m, "input", 0, BF16), "'/input/planes': Cast to bfloat16"),
    "N02 float64 planes": (good, lambda m: cast(m, "input", 0, F64), "'/input/planes': Cast to float64"),
    "N02 int64 planes": (good, lambda m: cast(m, "input", 0, TensorProto.INT64), "Cast to int64"),
    "N02 uint8 planes": (good, lambda m: cast(m, "input", 0, TensorProto.UINT8), "Cast to uint8"),
    "N03 float64 policy": (good, lambda m: cast(m, "output", 0, F64), "a network of the family lc0"),
    "N14 float16 ratings": (maia3, lambda m: cast(m, "input", 1, F16), "'elo_self': Cast to float16"),
    "N14 float64 ratings": (maia3, lambda m: cast(m, "input", 2, F64), "'elo_oppo': Cast to float64"),
    "N12 planes of Keras": (good, lambda m: moved(m, "input", [1, 2, 0], [8, 8, 112]), "Transpose"),
    "N12 planes by square": (good, lambda m: moved(m, "input", [1, 2, 0], [64, 112]), "Transpose, Reshape"),
    "N12 flat planes": (good, lambda m: moved(m, "input", [0, 1, 2], [7168]), "Reshape"),
    "N12 pgx planes first": (pgx, lambda m: moved(m, "input", [2, 0, 1], [119, 8, 8]), "Transpose"),
    "N12 tokens as a board": (maia3, lambda m: moved(m, "input", [0, 1], [8, 8, 12]), "'tokens': Reshape"),
    "N12 tokens as planes": (maia3, lambda m: moved(m, "input", [1, 0], [12, 8, 8]), "Transpose, Reshape"),
    "N12 policy 8 8 73": (pgx, lambda m: moved(m, "output", [0], [8, 8, 73]), "'policy': Reshape"),
    "N12 policy 64 73": (pgx, lambda m: moved(m, "output", [0], [64, 73]), "'policy': Reshape"),
    "N12 policy 73 8 8": (pgx_by_plane, lambda m: moved(m, "output", [2, 0, 1], [73, 8, 8]), "Transpose, Reshape"),
    "N12 policy 73 64": (pgx_by_plane, lambda m: moved(m, "output", [2, 0, 1], [73, 64]), "Transpose, Reshape"),
    "policy with an axis of 1": (good, lambda m: moved(m, "output", [0], [1, 1858]), "'/output/policy': Reshape"),
}


@pytest.mark.parametrize("name", TWINS)
def test_other_types_and_layouts_give_equal_policies(name: str, tmp_path: Path) -> None:
    make, change, words = TWINS[name]
    make(tmp_path / "own.onnx")
    changed(change, make)(tmp_path / "other.onnx")
    own, other = (add_onnx(tmp_path / f"{one}.onnx", tmp_path / "m", one) for one in ("own", "other"))
    assert words in "\n".join(other.notes)
    assert other.entry.served
    np.testing.assert_allclose(policies(other.entry.model), policies(own.entry.model), rtol=2e-3)


@pytest.mark.parametrize("batch", ["", "1"], ids=["free", "fixed at 1"])
def test_ratings_with_an_extra_axis(batch: str, tmp_path: Path) -> None:
    def shaped(model: onnx.ModelProto) -> None:
        for value in model.graph.input[1:]:
            value.type.tensor_type.shape.dim.add().dim_value = 1
        for value in (*model.graph.input, *model.graph.output) if batch else ():
            value.type.tensor_type.shape.dim[0].dim_value = 1

    maia3(tmp_path / "own.onnx")
    changed(shaped, maia3)(tmp_path / "other.onnx")
    own, other = (add_onnx(tmp_path / f"{one}.onnx", tmp_path / "m", one) for one in ("own", "other"))
    assert "put into the graph at input 'elo_self': Reshape" in "\n".join(other.notes)
    np.testing.assert_allclose(policies(other.entry.model), policies(own.entry.model), rtol=1e-5)


def test_probabilities_and_logits_as_outputs(tmp_path: Path) -> None:
    good(tmp_path / "own.onnx")

    def softmaxed(model: onnx.ModelProto) -> None:
        model.graph.node.append(helper.make_node("Softmax", ["/output/policy"], ["probabilities"], axis=1))
        added = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["b", 1858])
        model.graph.output.insert(0, added)

    changed(softmaxed)(tmp_path / "both.onnx")

    def alone(model: onnx.ModelProto) -> None:
        softmaxed(model)
        model.graph.output.pop(1)

    changed(alone)(tmp_path / "alone.onnx")
    own, both, only = (add_onnx(tmp_path / f"{one}.onnx", tmp_path / "m", one) for one in ("own", "both", "alone"))
    assert "output probabilities holds probabilities, '/output/policy' their logits" in both.notes
    assert any("'probabilities': Log" in note for note in only.notes)
    for other in (both, only):
        np.testing.assert_allclose(policies(other.entry.model), policies(own.entry.model), rtol=1e-4)


def test_value_order_and_scale_are_detected(tmp_path: Path) -> None:
    write_judge(tmp_path / "inverted.onnx", inverted=True)
    added = add_onnx(tmp_path / "inverted.onnx", tmp_path / "m", "inverted", Choices("maia2"))
    (note,) = (note for note in added.notes if note.startswith("output 'value' is "))
    assert note.startswith("output 'value' is loss, draw, win for the side to move: won positions score")

    def sigmoid(model: onnx.ModelProto) -> None:
        node = next(node for node in model.graph.node if "value" in node.output)
        node.output[0] = "wide"
        model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "first slot"))
        model.graph.node.append(helper.make_node("Gather", ["wide", "first slot"], ["chosen"], axis=1))
        model.graph.node.append(helper.make_node("Sigmoid", ["chosen"], ["value"]))
        model.graph.output[1].type.tensor_type.shape.dim[1].dim_value = 1

    changed(sigmoid, write_judge)(tmp_path / "sigmoid.onnx")
    added = add_onnx(tmp_path / "sigmoid.onnx", tmp_path / "m", "sigmoid", Choices("maia2"))
    assert "output 'value' is the expected score from 0 to 1, for the side to move" in added.notes
    assert "won positions score 1.00, lost 0.00" in added.entry.steps[-1].found


def test_moves_left_output_is_no_score(tmp_path: Path) -> None:
    def counted(model: onnx.ModelProto) -> None:
        node = next(node for node in model.graph.node if "left" in node.output)
        node.output[0] = "small"
        model.graph.initializer.append(numpy_helper.from_array(np.array([[50.0]], dtype=np.float32), "fifty"))
        model.graph.node.append(helper.make_node("Add", ["small", "fifty"], ["left"]))
        value = next(node for node in model.graph.node if "v" in node.output)
        value.output[0] = "plain"
        model.graph.node.append(helper.make_node("Tanh", ["plain"], ["v"]))

    def make(file: Path) -> None:
        write_named(file, [LC0], [POLICY, Tensor("v", (1,)), Tensor("left", (1,))])

    changed(counted, make)(tmp_path / "net.onnx")
    added = add_onnx(tmp_path / "net.onnx", tmp_path / "m", "net")
    assert "output 'v' is the expected score from -1 to 1, for the side to move" in added.notes
    assert "not used: left" in added.notes


def test_axes_with_one_symbolic_name(tmp_path: Path) -> None:
    def same(model: onnx.ModelProto) -> None:
        for value in (*model.graph.input, *model.graph.output):
            for dimension in value.type.tensor_type.shape.dim:
                dimension.dim_param = "N"

    good(tmp_path / "own.onnx")
    changed(same)(tmp_path / "other.onnx")
    own, other = (add_onnx(tmp_path / f"{one}.onnx", tmp_path / "m", one) for one in ("own", "other"))
    np.testing.assert_allclose(policies(other.entry.model), policies(own.entry.model), rtol=1e-5)


def external(folder: Path, location: str) -> Path:
    """A network with its weights in a file of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    good(folder / "plain.onnx")
    (folder / location).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(
        onnx.load(folder / "plain.onnx"),
        folder / "model.onnx",
        save_as_external_data=True,
        location=location,
        size_threshold=0,
    )
    return folder / "model.onnx"


def test_hugging_face_cache_links(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N05: `snapshots/REVISION/onnx/model.onnx` and its data are links into `blobs/`, which have other names."""
    file = external(tmp_path / "export", "model.onnx_data")
    cache = tmp_path / "hub" / "models--x--y"
    snapshot = cache / "snapshots" / "abc" / "onnx"
    snapshot.mkdir(parents=True)
    (cache / "blobs").mkdir()
    for number, name in enumerate(("model.onnx", "model.onnx_data")):
        os.rename(file.with_name(name), cache / "blobs" / f"{number:064x}")
        (snapshot / name).symlink_to(Path("../../../blobs") / f"{number:064x}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for seconds in ("0", "600"):
        monkeypatch.setenv("MOVEMASK_TRIAL_SECONDS", seconds)
        result = run(
            "models", "add", "--force", snapshot / "model.onnx", "--name", f"hub{seconds}", "--models-dir", folder
        )
        assert result.exit_code == 0, result.output
        assert "weights copied" in result.output
    (snapshot / "model.onnx_data").unlink()
    result = run("models", "add", "--force", snapshot / "model.onnx", "--models-dir", folder)
    assert result.exit_code == 1
    assert "'model.onnx_data': no such file or directory; put it into the folder of model.onnx" in result.output
    assert "blobs" not in result.output


def test_weights_in_subfolder_and_truncated(folder: Path, tmp_path: Path) -> None:
    file = external(tmp_path / "export", "weights/all.bin")
    assert run("models", "add", "--force", file, "--models-dir", folder).exit_code == 0
    data = file.parent / "weights" / "all.bin"
    data.write_bytes(data.read_bytes()[:1000])
    result = run("models", "add", "--force", file, "--models-dir", folder, "--replace")
    assert result.exit_code == 1
    assert "'weights/all.bin' has 1,000 bytes, and " in result.output
    assert "it is cut off, or belongs to another export" in result.output


@pytest.mark.skipif(not MAIA.exists(), reason="maia-1: ../shared/maia1 is not here")
@pytest.mark.parametrize("row", rows("network-posted.jsonl"), ids=lambda row: row["case"])
def test_lc0_posted_policy_at_its_temperature(row: dict[str, Any], tmp_path: Path) -> None:
    for name, best in row["best"].items():
        import_lc0(MAIA / f"{name}.pb.gz", tmp_path, name)
        command = (
            "predict",
            *([] if row["moves"] else [row["fen"]]),
            "--model",
            name,
            "--models-dir",
            tmp_path,
            "--json",
        )
        moves = ("--moves", row["moves"]) if row["moves"] else ()
        answer = json.loads(run(*command, *moves, "--temperature", "1.359").output)
        percents = {move["uci"]: 100 * move["probability"] for move in answer["moves"]}
        assert max(percents, key=lambda uci: percents[uci]) == best
        for uci, percent in row.get("percent", {}).items():
            assert percents[uci] == pytest.approx(percent, abs=0.0051)  # posted with two places
