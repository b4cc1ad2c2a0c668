"""What a user would lose: their network as integers by one command, as good as before, or a refusal that says why."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import Result
from onnx import helper, numpy_helper

from movemask.network.contract import read_contract
from movemask.network.files import shipped_models
from movemask.network.model import Array, Model
from movemask.network.onnx import OnnxSession
from movemask.network.registry import load_entry, open_model
from movemask.network_tools import judging, quantising
from movemask.network_tools.judging import Sets, batches_of, sets
from movemask.network_tools.quantising import quantise
from tests.conftest import ROOT
from tests.networks import Tensor, write_graph
from tests.processes import contents
from tests.processes import run as run_command
from tests.weight_files import Made

MAIA = ROOT.parent / "shared" / "maia1"


@pytest.fixture(scope="module", autouse=True)
def _fewer_positions() -> object:
    """Enough for what is tested here; the real numbers are for real networks."""
    with pytest.MonkeyPatch.context() as patch:
        for name, number in (("CALIBRATION", 64), ("JUDGED", 256)):
            patch.setattr(judging, name, number)
        patch.setattr(quantising, "SWEPT", 5)
        patch.setattr(judging, "_ROUNDS", 5)
        yield


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network like Maia-1, but small and with random weights."""
    folder = tmp_path_factory.mktemp("m")
    file = Made(filters=16).write(folder, "small.pb.gz")
    assert run_command("models", "import", "--force", file, "--models-dir", folder).exit_code == 0
    file.unlink()
    contract = folder / "small.toml"
    contract.write_text(
        contract.read_text() + "\n[calibration]\ntemperature = 1.1\npositions = 900\n"
        'cross_entropy_before = 1.0\ncross_entropy_after = 0.9\nsource = "games"\n'
    )
    return folder


@pytest.fixture(scope="module")
def quantised_once(original: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with `small` and its integers, and what the command said."""
    folder = tmp_path_factory.mktemp("once") / "m"
    shutil.copytree(original, folder)
    result = quantize("small", "--models-dir", folder, "--bits", "8", "--force")
    assert result.exit_code == 0, result.output
    return folder, result.output


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "m")
    return tmp_path / "m"


@pytest.fixture(scope="module")
def small(original: Path) -> Model:
    return open_model(original / "small.toml", 1)


@pytest.fixture(scope="module")
def known(small: Model, _fewer_positions: None) -> Sets:
    return sets(small, [])


def quantize(*arguments: str | Path) -> Result:
    return run_command("models", "quantize", *arguments)


def test_a_network_is_written_beside_its_original_with_its_contract_and_what_was_found(
    original: Path, quantised_once: tuple[Path, str]
) -> None:
    folder, output = quantised_once
    before, after = contents(original), contents(folder)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"small-int8.onnx", "small-int8.toml"}
    assert len(after["small-int8.onnx"]) < len(before["small.onnx"])
    first, second = read_contract(folder / "small.toml"), read_contract(folder / "small-int8.toml")
    for part in ("terms", "inputs", "outputs", "elo", "calibration"):
        assert getattr(first, part) == getattr(second, part)
    card = second.card["quantised"]
    entry = load_entry(folder / "small.toml", 1)
    assert (card["from"], card["from_digest"]) == ("small", entry.digest)
    assert second.card["original"] == first.card
    assert card["weight_bits"] == 8
    assert card["judged"]["positions"] == card["judged_bare"]["positions"] == 256
    assert card["judged"] != card["judged_bare"]
    assert card["calibrated_on"] == 64
    assert card["limits"] == {"kl": 0.005, "flips": 0.05, "clear_flips": 0.005, "lost": 0.005}
    with_history, bare = output.split("from bare FENs: 256 positions")
    for text, judged in ((with_history, card["judged"]), (bare, card["judged_bare"])):
        (value, error), *_ = re.findall(r"KL from the original's policy, nats +(\S+) ± (\S+), limit 0.0050", text)
        assert float(value) == pytest.approx(judged["means"]["kl"]["value"], abs=6e-5)
        assert float(error) == pytest.approx(judged["means"]["kl"]["error"], abs=6e-5)
    assert "swept" not in card  # it takes no ratings
    told = re.search(r"([\d.]+) x the speed", output)
    assert told is not None
    assert float(told[1]) == pytest.approx(card["speed"]["ratio"], abs=0.011)  # each is rounded by itself
    assert run_command("models", "check", "small-int8", "--models-dir", folder).exit_code == 0
    asked = ["predict", "--models-dir", str(folder), "--json", "--model"]
    answers = [json.loads(run_command(*asked, name).output) for name in ("small", "small-int8")]
    probabilities = [{move["uci"]: move["probability"] for move in answer["moves"]} for answer in answers]
    assert probabilities[0] == pytest.approx(probabilities[1], abs=0.1)
    assert probabilities[0] != probabilities[1]


def test_past_the_limits_no_model_is_added_unless_forced_and_then_without_calculating_again(folder: Path) -> None:
    sharpen(folder)
    before = contents(folder)
    asked = ("small", "--models-dir", folder, "--as", "mine")
    result = quantize(*asked)
    assert result.exit_code == 1
    assert re.search(
        r"^Error: mine is refused: .*flips of first moves that led by 0.1 \S+% ± \S+%, limit 0\.50%; ",
        result.output,
        re.M,
    )
    assert "; from bare FENs: " in result.output
    assert result.output.rstrip().endswith("--force keeps it")
    after = contents(folder)
    refused = after.pop(".mine-refused.onnx")
    assert after == before
    again = quantize(*asked, "--force")
    assert again.exit_code == 0, again.output
    assert "calibrating" not in again.output
    assert "kept past the limit: flips of first moves" in again.output
    assert sorted(set(contents(folder)) - set(before)) == ["mine.onnx", "mine.toml"]
    exceeded = read_contract(folder / "mine.toml").card["quantised"]["exceeded"]
    assert any(one.startswith("from bare FENs: ") for one in exceeded)
    assert run_command("models", "check", "mine", "--models-dir", folder).exit_code == 0
    taken = quantize(*asked, "--force")
    assert taken.exit_code == 1
    assert "mine.onnx already exists: use --replace, or choose another --as" in taken.output
    (folder / ".mine-refused.onnx").write_bytes(refused)
    other = quantize(*asked, "--force", "--replace", "--last", "1")  # something else is asked
    assert other.exit_code == 0, other.output
    assert "calibrating" in other.output
    assert len(read_contract(folder / "mine.toml").card["quantised"]["layers"]) == 1


def sharpen(folder: Path) -> None:
    """Makes the network so sure of its moves that 8 bits are too coarse."""
    model = onnx.load(str(folder / "small.onnx"))
    for tensor in model.graph.initializer:
        if tensor.name.startswith("/policy/conv2/"):
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * 10, tensor.name))
    onnx.save(model, str(folder / "small.onnx"))
    contract = folder / "small.toml"
    contract.write_text(re.sub(r"digest = .*\n", "", contract.read_text()))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none", "no model 'none'; available: small, small-int8"),
        ("small-int8", "small-int8.onnx: is already quantised: it has "),
    ],
)
def test_what_cannot_be_quantised_is_said_in_one_line(quantised_once: tuple[Path, str], name: str, said: str) -> None:
    folder, _ = quantised_once
    before = contents(folder)
    result = quantize(name, "--models-dir", folder)
    assert result.exit_code == 1
    assert said in result.output.splitlines()[-1]
    assert contents(folder) == before


def test_a_network_of_the_users_own_folder_is_written_beside_it_and_the_shipped_ones_are_left_alone(
    original: Path, own_models: Path
) -> None:
    before = contents(shipped_models())
    try:
        shutil.copytree(original, own_models)
        result = quantize("small", "--last", "1", "--force")
        assert result.exit_code == 0, result.output
        files = [f"{name}.{ending}" for name in ("small", "small-int8") for ending in ("onnx", "toml")]
        assert sorted(contents(own_models)) == sorted([*files, "default"])
        card = read_contract(own_models / "small-int8.toml").card
        assert len(card["quantised"]["layers"]) == 1
        assert contents(shipped_models()) == before
    finally:
        shutil.rmtree(own_models, ignore_errors=True)


def written(folder: Path, nodes: list[onnx.NodeProto], arrays: dict[str, tuple[int, ...]]) -> Written:
    """The layers of a network with random weights that was written as integers, its answers before and after."""
    rng = np.random.default_rng(0)
    shapes = {name: shape for name, shape in arrays.items() if name not in ("x", "logits", "value")}
    constants = {name: (rng.normal(size=shape) / 8).astype(np.float32) for name, shape in shapes.items()}
    outputs = [Tensor(name, arrays[name]) for name in ("logits", "value")]
    write_graph(folder / "d.onnx", nodes, [Tensor("x", arrays["x"])], outputs, constants)
    batches = [{"x": rng.normal(size=(64, *arrays["x"])).astype(np.float32)} for _ in range(8)]
    layers = quantise(folder / "d.onnx", folder / "q.onnx", ["logits", "value"], batches, False, None)
    answers = [OnnxSession(folder / f"{name}.onnx", 1).run(batches[0], ["logits", "value"]) for name in "dq"]
    return layers, answers[0], answers[1]


Written = tuple[tuple[list[str], list[str]], list[Array], list[Array]]


def attention() -> list[onnx.NodeProto]:
    """A layer of a transformer over eight squares: products with weights, and two without."""
    node = helper.make_node
    return [
        node("MatMul", ["x", "q"], ["Q"], name="query"),
        node("MatMul", ["x", "k"], ["K"], name="key"),
        node("Transpose", ["K"], ["Kt"], perm=[0, 2, 1]),
        node("MatMul", ["Q", "Kt"], ["scores"], name="scores"),
        node("Softmax", ["scores"], ["weights"]),
        node("MatMul", ["x", "v"], ["V"], name="values"),
        node("MatMul", ["weights", "V"], ["mixed"], name="mix"),
        node("Add", ["x", "mixed"], ["stream"]),
        node("MatMul", ["stream", "up"], ["inner"], name="up"),
        node("Gelu", ["inner"], ["activated"], domain="com.microsoft"),
        node("MatMul", ["activated", "down"], ["back"], name="down"),
        node("Add", ["stream", "back"], ["out"]),
        node("MatMul", ["out", "tiny"], ["logits"], name="policy"),
        node("MatMul", ["out", "off"], ["value"], name="value"),
    ]


WEIGHTS = {"q": (64, 64), "k": (64, 64), "v": (64, 64), "up": (64, 128), "down": (128, 64), "tiny": (64, 5)}
SHAPES: dict[str, tuple[int, ...]] = {**WEIGHTS, "off": (64, 100), "x": (8, 64), "logits": (8, 5), "value": (8, 100)}


def test_a_transformers_products_with_weights_are_integers_and_its_heads_and_stream_stay_float(tmp_path: Path) -> None:
    (integers, floats), before, after = written(tmp_path, attention(), SHAPES)
    assert integers == ["query", "key", "values", "up", "down"]
    assert floats == ["value"]  # the policy is too small to be asked
    for one, other in zip(before, after, strict=True):
        assert 0.999 < np.corrcoef(one.ravel(), other.ravel())[0, 1] < 1
    graph = onnx.load(str(tmp_path / "q.onnx")).graph
    makers = {name: node.op_type for node in graph.node for name in node.output}
    for node in graph.node:
        if node.op_type == "Add":
            assert [makers.get(name, "input") for name in node.input] in (["input", "MatMul"], ["Add", "MatMul"])
    assert not any("Dynamic" in node.op_type for node in graph.node)


def test_a_quantised_network_answers_alone_as_in_any_batch(tmp_path: Path) -> None:
    written(tmp_path, attention(), SHAPES)
    session = OnnxSession(tmp_path / "q.onnx", 1)
    x = np.random.default_rng(1).normal(size=(16, 8, 64)).astype(np.float32)
    x[1:] *= 3  # dynamic integers would take their scale from these
    (together,) = session.run({"x": x}, ["logits"])
    (alone,) = session.run({"x": x[:1]}, ["logits"])
    np.testing.assert_allclose(alone[0], together[0], atol=1e-5)


@pytest.mark.parametrize("bits", [7, 8])
def test_weights_of_7_bits_cannot_saturate(
    original: Path, small: Model, known: Sets, tmp_path: Path, bits: int
) -> None:
    batches = [small.feeds(batch) for batch in batches_of(small, known.calibration)]
    outputs = [small.contract.outputs.logits]
    quantise(original / "small.onnx", tmp_path / "q.onnx", outputs, batches, bits == 7, None)
    tensors = onnx.load(str(tmp_path / "q.onnx")).graph.initializer
    weights = [numpy_helper.to_array(one) for one in tensors if one.data_type == onnx.TensorProto.INT8]
    assert max(np.abs(one.astype(int)).max() for one in weights) == (64 if bits == 7 else 127)
