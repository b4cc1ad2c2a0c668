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
from movemask.network.model import Array, Model
from movemask.network.onnx import OnnxSession
from movemask.network.registry import load_entry, open_model
from movemask.quantisation import comparison, positions, run
from movemask.quantisation.comparison import Comparison, Limits, batches_of, selected
from movemask.quantisation.network import CalibrationStats, LayeredNetwork, calibration_stats
from movemask.quantisation.positions import Sets, sets
from movemask.quantisation.run import weights_for
from movemask.quantisation.writing import Rounded, Writer, rounded
from movemask.settings import shipped_models
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
        for name, number in (("CALIBRATION", 64), ("SEARCH", 64), ("JUDGED", 256)):
            patch.setattr(positions, name, number)
        patch.setattr(run, "SWEPT", 5)
        patch.setattr(comparison, "_ROUNDS", 5)
        yield


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network like Maia-1, but small and with random weights."""
    folder = tmp_path_factory.mktemp("m")
    file = Made(filters=16).write(folder, "small.pb.gz")
    assert run_command("models", "import", file, "--models-dir", folder).exit_code == 0
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
    for part in ("contract", "inputs", "outputs", "elo", "calibration"):
        assert getattr(first, part) == getattr(second, part)
    card = second.card["quantised"]
    entry = load_entry(folder / "small.toml", 1)
    assert (card["from"], card["from_digest"]) == ("small", entry.digest)
    assert second.card["original"] == first.card
    assert card["weight_bits"] == 8
    assert card["judged"]["positions"] == card["judged_bare"]["positions"] == 256
    assert card["judged"] != card["judged_bare"]
    assert card["calibrated_on"] == 64
    assert card["limits"] == {"kl": 0.005, "flips": 0.05, "clear_flips": 0.005, "accuracy": 0.003}
    with_history, bare = output.split("from bare FENs, without history")
    assert f"{card['judged_bare']['kl']:.4f}" in bare
    shown = dict(re.findall(r"^(.*?)  +(\d\S*)", with_history, re.M))
    assert float(shown["mean KL from the original, nats"]) == pytest.approx(card["judged"]["kl"], abs=6e-5)
    assert float(shown["largest change of a probability"]) == pytest.approx(card["judged"]["largest"], abs=6e-4)
    assert "human-move accuracy" in shown
    assert "raw leakage, mean" in shown
    assert (card["swept"]["positions"], card["swept"]["ratings"]) == (10, 18)
    seen = card["swept"]["largest"] > 0.03 or card["swept"]["mean"] > 0.003
    assert ("keep small as the default" in output) == seen
    assert f"{card['speed']['ratio']} x the speed" in re.sub(r"(\d\.\d)0 x", r"\1 x", output)
    assert run_command("models", "check", "small-int8", "--models-dir", folder).exit_code == 0
    asked = ["predict", "--models-dir", str(folder), "--json", "--model"]
    answers = [json.loads(run_command(*asked, name).output) for name in ("small", "small-int8")]
    probabilities = [{move["uci"]: move["probability"] for move in answer["moves"]} for answer in answers]
    assert probabilities[0] == pytest.approx(probabilities[1], abs=0.1)
    assert probabilities[0] != probabilities[1]


def test_past_the_limits_nothing_is_written_unless_forced(folder: Path) -> None:
    sharpen(folder)
    before = contents(folder)
    asked = ("small", "--models-dir", folder, "--last", "1", "--as", "mine")
    result = quantize(*asked)
    assert result.exit_code == 1
    assert re.search(r"^Error: mine is refused: .*top-move flips \d+\.\d+%, limit 5\.00%; ", result.output, re.M)
    assert "; from bare FENs: top-move flips " in result.output
    assert result.output.rstrip().endswith("--force keeps it")
    assert contents(folder) == before
    for ending in ("onnx", "toml"):
        shutil.copy(folder / f"small.{ending}", folder / f"mine.{ending}")
    taken = quantize(*asked, "--force")
    assert taken.exit_code == 1
    assert "mine.onnx is there already: --replace, or another --as" in taken.output
    result = quantize(*asked, "--force", "--replace")
    assert result.exit_code == 0
    assert "kept past the limits: top-move flips " in result.output
    exceeded = read_contract(folder / "mine.toml").card["quantised"]["exceeded"]
    assert any(one.startswith("from bare FENs: ") for one in exceeded)


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
        ("none", "no model 'none'; there are small, small-int8"),
        ("small-int8", "small-int8.onnx: is quantised already: it has "),
    ],
)
def test_what_cannot_be_quantised_is_said_in_one_line(quantised_once: tuple[Path, str], name: str, said: str) -> None:
    folder, _ = quantised_once
    before = contents(folder)
    result = quantize(name, "--models-dir", folder)
    assert result.exit_code == 1
    assert said in result.output.splitlines()[-1]
    assert contents(folder) == before


def test_a_shipped_network_is_quantised_into_the_users_own_folder(own_models: Path) -> None:
    before = contents(shipped_models())
    try:
        result = quantize("movemask-4", "--last", "1", "--force")
        assert result.exit_code == 0, result.output
        assert sorted(file.name for file in own_models.iterdir()) == [
            "movemask-4-int8.onnx",
            "movemask-4-int8.toml",
        ]
        card = read_contract(own_models / "movemask-4-int8.toml").card
        assert len(card["quantised"]["layers"]) == 1
        assert contents(shipped_models()) == before
    finally:
        shutil.rmtree(own_models, ignore_errors=True)


def prepared(small: Model, original: Path, known: Sets) -> tuple[LayeredNetwork, list[dict[str, Array]]]:
    batches = [small.feeds(batch) for batch in batches_of(small, known.calibration)]
    return LayeredNetwork(original / "small.onnx", small.contract.outputs.logits, batches[0]), batches


def rounded_layers(network: LayeredNetwork, stats: CalibrationStats, largest: int) -> dict[str, Rounded]:
    return {
        layer.name: rounded(layer.matrix(network.constants[layer.weight]), stats.moments[layer.name], largest)
        for layer in network.layers
    }


def test_whole_numbers_stay_exact_and_the_residual_stream_stays_float(
    small: Model, original: Path, known: Sets, tmp_path: Path
) -> None:
    network, batches = prepared(small, original, known)
    found = calibration_stats(network, batches)
    assert found.whole == {"/input/planes"}
    roundings = rounded_layers(network, found, 64)
    file = tmp_path / "written.onnx"
    Writer(network, found, roundings, batches[0]).write(network.layers, file)
    graph = onnx.load(str(file)).graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    (planes,) = (node for node in graph.node if node.op_type == "QuantizeLinear" and node.input[0] == "/input/planes")
    assert [float(constants[name]) for name in planes.input[1:]] == [1, 0]
    streams = [makers[node.input[1]].op_type for node in graph.node if node.name.endswith("/mixin")]
    assert streams == ["DequantizeLinear", "Relu"]  # the stem's own output, then the float sum of the first block
    for layer in network.layers:
        steps = roundings[layer.name].weights / roundings[layer.name].scales[:, None]
        (node,) = (node for node in graph.node if node.name == layer.name)
        written = constants[makers[node.input[1]].input[0]]
        assert written.dtype == np.int8
        np.testing.assert_array_equal(layer.matrix(written), np.round(steps))
        assert np.abs(written.astype(int)).max() <= 64


def test_layers_are_given_back_to_float_until_the_limits_hold(small: Model, original: Path, known: Sets) -> None:
    network, batches = prepared(small, original, known)
    found = calibration_stats(network, batches)
    roundings = rounded_layers(network, found, 7)
    writer, judge, told = Writer(network, found, roundings, batches[0]), Comparison(small, known.search), list[str]()

    def choice(kl: float) -> tuple[int, int]:
        integers, floats = selected(
            network.layers, network.multiplications, writer, judge, judge, Limits(kl, 1, 1, 1), told.append
        )
        assert sorted(layer.name for layer in (*integers, *floats)) == sorted(layer.name for layer in network.layers)
        return len(integers), len(floats)

    everything = len(network.layers)
    assert choice(1e3) == (everything, 0)
    damage = float(re.search(r"KL (\S+),", told[0])[1])  # type: ignore[index]
    some, back = choice(damage / 2)
    assert 0 < back < everything
    assert some + back == everything
    assert choice(0.0) == (1, everything - 1)


def test_products_of_matrices_are_layers_too(tmp_path: Path) -> None:
    """Two dense layers, one with a bias; the small one and those off the way to the logits stay in float."""
    rng = np.random.default_rng(0)
    arrays = {"a": (64, 32), "b": (32,), "c": (32, 48), "d": (48, 48), "tiny": (48, 1), "off": (64, 500)}
    constants = {name: (rng.normal(size=shape) / 8).astype(np.float32) for name, shape in arrays.items()}
    nodes = [
        helper.make_node("Gemm", ["x", "a", "b"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "c"], ["m"], name="second"),
        helper.make_node("Tanh", ["m"], ["t"]),
        helper.make_node("MatMul", ["t", "d"], ["e"], name="third"),
        helper.make_node("MatMul", ["t", "tiny"], ["g"], name="tiny"),
        helper.make_node("Mul", ["e", "g"], ["logits"]),
        helper.make_node("MatMul", ["x", "off"], ["value"], name="off"),
    ]
    outputs = [Tensor("logits", (48,)), Tensor("value", (500,))]
    write_graph(tmp_path / "d.onnx", nodes, [Tensor("x", (64,))], outputs, constants)
    batches = [{"x": rng.normal(size=(64, 64)).astype(np.float32)} for _ in range(8)]
    network = LayeredNetwork(tmp_path / "d.onnx", "logits", batches[0])
    assert [layer.name for layer in network.layers] == ["first", "second", "third"]
    found = calibration_stats(network, batches)
    roundings = rounded_layers(network, found, 64)
    Writer(network, found, roundings, batches[0]).write(network.layers, tmp_path / "q.onnx")
    expected, got = (OnnxSession(tmp_path / f"{n}.onnx", 1).run(batches[0], ["logits", "value"]) for n in "dq")
    assert np.corrcoef(expected[0].ravel(), got[0].ravel())[0, 1] > 0.999
    np.testing.assert_allclose(expected[1], got[1], rtol=1e-5, atol=1e-4)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["maia-1100", "maia-1500", "maia-1900"])
@pytest.mark.skipif(not MAIA.exists(), reason="maia-1: ../shared/maia1 is not here")
def test_maia_is_within_the_limits_by_the_shipped_probes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, wanted in (("CALIBRATION", 1024), ("SEARCH", 4096), ("JUDGED", 16384)):
        monkeypatch.setattr(positions, number, wanted)
    assert run_command("models", "import", MAIA / f"{name}.pb.gz", "--models-dir", tmp_path).exit_code == 0
    model = open_model(tmp_path / f"{name}.toml", 1)
    result = run.quantised(model, tmp_path / f"{name}.onnx", sets(model, []), weights_for(), Limits(), lambda _: None)
    assert result.judgement.kl <= 0.005
    assert result.judgement.clear_flips <= 0.005
    assert len(result.floats) <= 4
