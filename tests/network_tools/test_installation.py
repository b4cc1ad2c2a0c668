"""`models import`, `add`, `default`, `check`, `remove` and `export-onnx`."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import chess
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from movemask.errors import ContractError
from movemask.network.check import CHECK_FENS
from movemask.network.files import ModelFolders
from movemask.network.registry import load_entry, load_registry
from movemask.network_tools.installation import add_onnx
from tests.conftest import ROOT, Serve
from tests.networks import NO_VALUE, Tensor, write_fake, write_judge, write_loop, write_masking, write_named
from tests.parts import part_of
from tests.processes import contents, run
from tests.weight_files import WeightFile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_fake(tmp_path / "m", "first")
    return tmp_path / "m"


def test_import_lc0_weight_file(folder: Path, tmp_path: Path) -> None:
    result = run("models", "import", "--force", WeightFile().write(tmp_path, "small.pb.gz"), "--models-dir", folder)
    assert result.exit_code == 0, result.output
    assert "2 blocks of 8 filters, policy convolution" in result.output
    assert "small is added (sha256:" in result.output
    answer = json.loads(run("predict", "--model", "small", "--models-dir", folder, "--json").output)
    assert len(answer["moves"]) == 20
    assert answer["value"]["score"] == pytest.approx(answer["value"]["win"] + answer["value"]["draw"] / 2)
    checked = run("models", "check", "small", "--models-dir", folder)
    assert checked.exit_code == 0
    assert "small: keeps its contract" in checked.output


def test_import_scalar_value_is_the_score(folder: Path, tmp_path: Path) -> None:
    run(
        "models",
        "import",
        "--force",
        WeightFile(scalar_value=True).write(tmp_path, "scalar.pb.gz"),
        "--models-dir",
        folder,
    )
    answer = json.loads(run("predict", "--model", "scalar", "--models-dir", folder, "--json").output)
    assert answer["value"]["win"] is None
    assert 0 <= answer["value"]["score"] <= 1
    assert "White is expected to score 0." in run("predict", "--model", "scalar", "--models-dir", folder).output


def test_add_onnx_prints_its_guesses(folder: Path, tmp_path: Path) -> None:
    inputs = [Tensor("boards", (18, 8, 8)), Tensor("elo_self", (), "int64"), Tensor("elo_oppo", (), "int64")]
    write_named(tmp_path / "mine.onnx", inputs, [Tensor("logits_maia", (1880,))])
    result = run("models", "add", "--force", tmp_path / "mine.onnx", "--models-dir", folder)
    assert result.exit_code == 0, result.output
    assert "a network of the family maia2, by its shapes" in result.output
    ask = ("predict", "--model", "mine", "--models-dir", folder, "--json", "--elo")
    low, high, higher = (json.loads(run(*ask, elo, "1500").output) for elo in ("1000", "2000", "2400"))
    assert low["moves"] != high["moves"]
    assert high["moves"] == higher["moves"]  # one bucket


@pytest.mark.parametrize("dtype", part_of(["bool", "float32"], 2))
def test_legal_mask_input_is_fed(dtype: str, folder: Path, tmp_path: Path, serve: Serve) -> None:
    """With any other mask than that of the legal moves, nearly all of its mass would be illegal."""
    write_masking(tmp_path / "masking.onnx", dtype)
    added = run("models", "add", "--force", tmp_path / "masking.onnx", "--models-dir", folder)
    assert added.exit_code == 0, added.output
    assert "input 'mask' is the legal mask, 1 for legal moves, so trained_with_mask = true" in added.output
    fens = [chess.STARTING_FEN, *CHECK_FENS, "R5k1/5ppp/8/8/8/8/8/K7 b - - 0 1"]  # the last is mate
    answers = serve(folder).post("/v1/policy/batch", json={"model": "masking", "positions": [{"fen": f} for f in fens]})
    leakages = [answer["leakage"] for answer in answers.json()["results"] if answer["moves"]]
    assert len(leakages) == len(fens) - 1
    assert all(leakage["raw"] < 1e-30 and leakage["trained_with_mask"] for leakage in leakages)
    (tmp_path / "x.fen").write_text("\n".join(fens))
    options = ("--models-dir", folder, "--model", "masking", "--out", tmp_path / "o", "--jobs", "1")
    audited = run("audit", tmp_path / "x.fen", *options)
    assert audited.exit_code == 0, audited.output
    summary = json.loads((tmp_path / "o" / "summary.json").read_text())["models"]["masking"]
    assert summary["trained_with_mask"]
    assert summary["kinds"]["raw"]["max"] < 1e-30


def test_legal_mask_input_needs_trained_with_mask(tmp_path: Path) -> None:
    write_masking(tmp_path / "net.onnx", "float32")
    toml = NO_VALUE.replace("movemask-1880", "maia2-1880").replace("[outputs]", 'legal_mask = "mask"\n\n[outputs]')
    (tmp_path / "net.toml").write_text(toml)
    failure = load_entry(tmp_path / "net.toml", threads=1).failure or ""
    assert "contract.trained_with_mask: must be true for a network with inputs.legal_mask" in failure
    (tmp_path / "net.toml").write_text(toml.replace("false", "true"))
    assert load_entry(tmp_path / "net.toml", threads=1).served


def test_taken_name_needs_replace(folder: Path, tmp_path: Path) -> None:
    file = WeightFile().write(tmp_path, "net.pb.gz")
    assert run("models", "import", "--force", file, "--models-dir", folder).exit_code == 0
    before = contents(folder)
    result = run("models", "import", "--force", file, "--models-dir", folder)
    assert result.exit_code == 1
    assert "already exists: use --replace, or choose another --name" in result.output
    assert contents(folder) == before
    other = WeightFile(seed=5).write(tmp_path, "net.pb.gz")
    assert run("models", "import", "--force", other, "--models-dir", folder, "--replace").exit_code == 0
    assert contents(folder) != before
    assert run("models", "import", "--force", file, "--models-dir", folder, "--name", "../x").exit_code == 1


def with_external_data(file: Path, location: str = "/etc/passwd", **more: str) -> None:
    weights = numpy_helper.from_array(np.zeros((8, 8), dtype=np.float32), "w")
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        entry = weights.external_data.add()
        entry.key, entry.value = key, value
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", 8]) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file)


def with_a_link(file: Path) -> None:
    file.with_name("link").symlink_to("/etc/passwd")
    with_external_data(file, "link")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (with_external_data, "net.onnx: weights in another file: "),
        (lambda file: with_external_data(file, "../passwd"), "net.onnx: weights in another file: "),
        (lambda file: with_external_data(file, "nowhere"), "net.onnx: weights in another file: "),
        (
            lambda file: with_external_data(file, "net.onnx", length=str(1 << 40)),
            "needs 1,099,511,627,776 from byte 0: it is cut off",
        ),
        (with_a_link, "net.onnx: weights in another file: "),
        (lambda file: file.write_bytes(b"\x08\x07hello"), "net.onnx: not an ONNX file"),
        (lambda file: file.write_bytes(b""), "net.onnx: not an ONNX file"),
        (lambda file: write_named(file, [Tensor("x", (3,))], [Tensor("y", (4,))]), "no known network family"),
    ],
    ids=["outside", "above", "missing", "too large", "linked", "damaged", "empty", "another network"],
)
def test_refused_file_leaves_folder_unchanged(make: object, words: str, folder: Path, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path / "net.onnx")
    before = contents(folder)
    result = run("models", "add", "--force", tmp_path / "net.onnx", "--models-dir", folder)
    assert result.exit_code == 1
    assert words in result.output
    assert len(result.output.strip().splitlines()) == 1
    assert contents(folder) == before


def fixed(file: Path, batch: int, *, mixes: bool = False) -> Path:
    """A network like Maia-3 whose batch is fixed, in its tensors and in a Reshape; or one whose answers to a position
    depend on the others of its batch."""
    write_named(file, [Tensor("tokens", (64, 12))], [Tensor("logits_move", (4352,)), Tensor("v", (3,))])
    model = onnx.load(file)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    (shape,) = [one for one in model.graph.initializer if one.name == "flat"]
    shape.CopyFrom(numpy_helper.from_array(np.array([batch, 64 * 12], dtype=np.int64), "flat"))
    if mixes:
        (last,) = [node for node in model.graph.node if node.output[0] == "logits_move"]
        last.output[0] = "unmixed"
        model.graph.node.append(helper.make_node("CumSum", ["unmixed", "along"], ["logits_move"]))
        model.graph.initializer.append(numpy_helper.from_array(np.array(0), "along"))
    onnx.save(model, file)
    return file


def test_trial_time_limit(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = contents(folder)
    write_loop(tmp_path / "endless.onnx")
    monkeypatch.setenv("MOVEMASK_TRIAL_SECONDS", "2")
    refused = run("models", "add", "--force", tmp_path / "endless.onnx", "--contract", "maia2", "--models-dir", folder)
    assert (refused.exit_code, contents(folder)) == (1, before)
    assert refused.output == "Error: endless is not added: its check did not finish within 2 s\n"
    monkeypatch.setenv("MOVEMASK_TRIAL_SECONDS", "600")
    write_judge(tmp_path / "good.onnx")
    good = (
        "models",
        "add",
        "--force",
        tmp_path / "good.onnx",
        "--contract",
        "maia2",
        "--licence",
        "MIT",
        "--models-dir",
        folder,
    )
    added = run(*good)
    assert added.exit_code == 0, added.output
    assert "good is added" in added.output
    monkeypatch.setenv("MOVEMASK_TRIAL_SECONDS", "0")
    assert run(*good, "--replace").output == added.output
    (tmp_path / "text.onnx").write_text("text")
    monkeypatch.setenv("MOVEMASK_TRIAL_SECONDS", "600")
    refused = run("models", "add", "--force", tmp_path / "text.onnx", "--models-dir", folder)
    assert refused.output.startswith("Error: text.onnx: not an ONNX file")


def test_batch_of_1_is_freed_if_numbers_stay(folder: Path, tmp_path: Path) -> None:
    for name, mixes, words, free in (
        ("free", False, "its batch of 1 is freed: 8 positions together get the numbers of each", "B"),
        ("mixes", True, "its batch stays 1, so positions are run one by one: 8 positions together get other", ""),
    ):
        result = run(
            "models", "add", "--force", fixed(tmp_path / f"{name}.onnx", 1, mixes=mixes), "--models-dir", folder
        )
        assert result.exit_code == 0, result.output
        assert words in result.output
        graph = onnx.load(folder / f"{name}.onnx").graph
        assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == free
    result = run("models", "add", "--force", fixed(tmp_path / "pair.onnx", 2), "--models-dir", folder)
    assert result.exit_code == 1
    assert "input 'tokens' has a fixed batch of 2; export it with a variable batch" in result.output


def declared(file: Path, *, inputs: int | None, outputs: Sequence[int | None]) -> Path:
    """The network with these batches declared, whatever it has inside; None is a variable one."""
    model = onnx.load(file)
    batches = [inputs] * len(model.graph.input) + list(outputs)
    for value, batch in zip((*model.graph.input, *model.graph.output), batches, strict=True):
        dimension = value.type.tensor_type.shape.dim[0]
        dimension.CopyFrom(type(dimension)(dim_param="N") if batch is None else type(dimension)(dim_value=batch))
    onnx.save(model, file)
    return file


@pytest.mark.parametrize(("mixes", "words"), [(False, "its batch of 1 is freed: 8"), (True, "its batch stays 1, so")])
def test_batch_of_1_inside_is_freed_or_run_alone(tmp_path: Path, mixes: bool, words: str) -> None:
    """As of torch's exports of attention, in which a Reshape has the batch of the example."""
    file = declared(fixed(tmp_path / "net.onnx", 1, mixes=mixes), inputs=None, outputs=[None, None])
    added = add_onnx(file, tmp_path / "m", "net")
    assert added.entry.served
    assert any(note.startswith(words) for note in added.notes), added.notes
    contract = (tmp_path / "m" / "net.toml").read_text()
    (tmp_path / "net.toml").write_text(re.sub("digest = .*", "", contract))
    failure = load_entry(tmp_path / "net.toml", 1).failure or ""
    assert failure.startswith(
        "each of 8 positions runs alone, and all together do not, though the batch is declared as variable"
    )


def test_batch_of_8_inside_is_named(tmp_path: Path) -> None:
    file = declared(fixed(tmp_path / "net.onnx", len(CHECK_FENS)), inputs=None, outputs=[None, None])
    with pytest.raises(
        ContractError, match="8 positions run together, and one alone does not: its batch is fixed at 8"
    ):
        add_onnx(file, tmp_path / "m", "net")


@pytest.mark.parametrize("outputs", [[8, None], [1, None], [None, 1], [8, 8], [5, 3]])
def test_batch_declared_by_outputs_alone(tmp_path: Path, outputs: list[int | None]) -> None:
    """As of torch.onnx.export with dynamic_axes of the inputs alone; onnxruntime runs any number of positions."""
    write_named(
        tmp_path / "net.onnx", [Tensor("tokens", (64, 12))], [Tensor("logits_move", (4352,)), Tensor("v", (3,))]
    )
    added = add_onnx(declared(tmp_path / "net.onnx", inputs=None, outputs=outputs), tmp_path / "m", "net")
    assert added.entry.served
    assert added.entry.contract is not None
    assert added.entry.contract.outputs.value is not None


def test_external_weights_and_card_options(folder: Path, tmp_path: Path) -> None:
    inputs, outputs = [Tensor("tokens", (64, 12)), Tensor("self_elo", (), "int64")], [Tensor("logits", (4352,))]
    write_named(tmp_path / "one.onnx", inputs, outputs)
    onnx.save(onnx.load(tmp_path / "one.onnx"), tmp_path / "two.onnx", save_as_external_data=True, location="two.data")
    card = ("--licence", "AGPL-3.0", "--source", "https://example.org/two")
    for name in ("one", "two"):
        result = run("models", "add", "--force", tmp_path / f"{name}.onnx", "--models-dir", folder, *card)
        assert result.exit_code == 0, result.output
    assert "MiB from the file next to two.onnx" in result.output
    assert "the ratings themselves, not buckets" in result.output
    listed = run("models", "list", "--models-dir", folder).output
    assert listed.count("licence AGPL-3.0; source https://example.org/two") == 2
    answers = [
        json.loads(run("predict", "--model", name, "--models-dir", folder, "--json", "--elo", elo).output)["moves"]
        for name, elo in (("one", "1500"), ("two", "1500.3"), ("two", "600"), ("two", "500"))
    ]
    assert answers[0] == answers[1]
    assert answers[2] == answers[3] != answers[1]  # clamped to what Maia-3 has seen


def test_check_exits_with_1_and_reason(folder: Path) -> None:
    (folder / "bad.toml").write_text("[contract]\n")
    result = run("models", "check", "--models-dir", folder)
    assert result.exit_code == 1
    assert "first: keeps its contract" in result.output
    assert "bad: FAILS and is not served" in result.output
    assert "FAIL bad.toml: contract.planes: this key is missing" in result.output
    assert load_registry(folder, None, 1).get("first")


def test_default_is_recorded_by_import_and_choice(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "a-broken-experiment.toml").write_text("[contract]")
    for name, default in (("middle", "middle"), ("zebra", "middle"), ("alpha", "middle")):
        file = WeightFile().write(tmp_path, f"{name}.pb.gz")
        result = run("models", "import", "--force", file, "--models-dir", folder)
        words = f"Requests that name no model are answered by {default}. `movemask models default NAME` changes that."
        assert words in result.output
        assert load_registry(folder, None, 1).default == default
    result = run("models", "default", "zebra", "--models-dir", folder)
    assert result.output == "Requests that name no model are answered by zebra, once the service is reloaded.\n"
    assert load_registry(folder, None, 1).default == "zebra"
    assert "* zebra" in run("models", "list", "--models-dir", folder).output
    result = run("models", "default", "none", "--models-dir", folder)
    assert (result.exit_code, load_registry(folder, None, 1).default) == (1, "zebra")
    result = run("models", "remove", "zebra", "--yes", "--models-dir", folder)
    assert result.output.endswith(
        "\nRequests that name no model are answered by alpha, once the service is reloaded.\n"
    )
    assert load_registry(folder, None, 1).default == "alpha"
    assert (folder / "default").read_text() == "alpha\n"
    (folder / "default").write_bytes(b"\xff" * 1000)  # damaged: it counts for nothing
    assert load_registry(folder, None, 1).default == "alpha"


def test_shipped_network_stays_default_in_folder(tmp_path: Path) -> None:
    name, folder = shipped(), tmp_path / "m"
    folder.mkdir()
    for file in (ROOT / "models").glob(f"{name}.*"):
        shutil.copy(file, folder)
    (folder / "aaa.toml").write_text("[contract]")
    assert load_registry(ModelFolders.chosen(folder), None, 1).default == name
    run("models", "import", "--force", WeightFile().write(tmp_path, "bbb.pb.gz"), "--models-dir", folder)
    assert (folder / "default").read_text() == f"{name}\n"
    assert load_registry(ModelFolders.chosen(tmp_path / "m"), None, 1).default == name


def test_chance_level_network_needs_force(folder: Path, tmp_path: Path) -> None:
    file = WeightFile().write(tmp_path, "net.pb.gz")
    before = contents(folder)
    refused = run("models", "import", file, "--models-dir", folder)
    assert (refused.exit_code, contents(folder)) == (1, before)
    assert "2 blocks of 8 filters" in refused.output
    assert "In castling: the moves played have a perplexity of " in refused.output
    assert "net is not added: it is READ WRONGLY, or untrained; --force adds it anyway" in refused.output
    forced = run("models", "import", file, "--models-dir", folder, "--force")
    assert forced.exit_code == 0
    assert "NO BETTER THAN CHANCE: castling, " in forced.output
    assert "net is added" in forced.output


def test_nan_on_real_games_is_refused_with_its_position(folder: Path, tmp_path: Path) -> None:
    """NaN in a few positions was called "READ WRONGLY, or untrained", and a diagnosis was advised."""
    write_judge(tmp_path / "net.onnx", faults=("rare nan",))
    add = ("models", "add", tmp_path / "net.onnx", "--contract", "maia2", "--models-dir", folder)
    refused = run(*add)
    assert refused.exit_code == 1
    error = refused.output.splitlines()[-1]
    assert re.search(r"net is not added: model net: slot \d+: the logit of the legal move \w+ is nan, in '.*'", error)
    assert "; correct the network; --force adds it anyway" in error
    assert "--diagnose" not in refused.output
    assert "net is added" in run(*add, "--force").output


def test_file_over_2_gib_is_refused_by_its_size(folder: Path, tmp_path: Path) -> None:
    """3 GB were read to 2 GiB first."""
    with open(tmp_path / "huge.onnx", "wb") as file:
        file.truncate(3 << 40)  # sparse
    refused = run("models", "add", tmp_path / "huge.onnx", "--models-dir", folder)
    assert refused.exit_code == 1
    assert "huge.onnx: it has 3,298,534,883,328 bytes, and an ONNX file at most 2,147,483,647" in refused.output


@pytest.fixture
def own(own_models: Path) -> Iterator[Path]:
    """The user's own models folder, empty."""
    yield own_models
    shutil.rmtree(own_models, ignore_errors=True)


def shipped() -> str:
    return load_registry(ModelFolders.chosen(), None, 1).default


def test_import_goes_to_the_users_folder(own: Path, tmp_path: Path) -> None:
    before = shipped()
    result = run("models", "import", "--force", WeightFile().write(tmp_path, "aaa.pb.gz"))
    assert result.exit_code == 0, result.output
    assert f"Requests that name no model are answered by {before}. " in result.output
    assert {file.name for file in own.iterdir()} == {"aaa.onnx", "aaa.toml"}
    assert shipped() == before
    printed = re.search(r"Try `movemask (.*?)`", result.output)
    assert printed
    assert "Network: aaa" in run(*shlex.split(printed[1])).output
    listed = run("models", "list").output
    assert f"* {before}" in listed
    assert "  aaa" in listed
    run("models", "default", "aaa")
    assert shipped() == "aaa"


def test_shipped_name_needs_replace(own: Path, tmp_path: Path) -> None:
    name = shipped()
    file = WeightFile().write(tmp_path, f"{name}.pb.gz")
    refused = run("models", "import", "--force", file)
    assert refused.exit_code == 1
    assert "is the name of a shipped model: choose another --name, or use --replace to override it" in refused.output
    assert not own.exists()
    assert run("models", "import", "--force", file, "--replace").exit_code == 0
    assert "blocks" not in run("models", "check", name).output
    card = load_registry(ModelFolders.chosen(), None, 1).get(name).contract.card
    assert card["source"] == f"{file.name}, converted by movemask models import"


def test_exported_file_carries_its_contract(folder: Path, tmp_path: Path) -> None:
    run("models", "import", "--force", WeightFile().write(tmp_path, "net.pb.gz"), "--models-dir", folder)
    out = tmp_path / "out.onnx"
    result = run("models", "export-onnx", "net", out, "--models-dir", folder)
    assert result.exit_code == 0, result.output
    assert run("models", "export-onnx", "net", out, "--models-dir", folder).exit_code == 1
    added = run("models", "add", "--force", out, "--name", "back", "--models-dir", folder)
    assert "its contract is the one that the file carries" in added.output
    one, other = (
        json.loads(run("predict", "--moves", "e2e4", "--model", name, "--models-dir", folder, "--json").output)
        for name in ("net", "back")
    )
    assert (one["moves"], one["value"]) == (other["moves"], other["value"])


def test_remove_keeps_shared_network(folder: Path, tmp_path: Path) -> None:
    run("models", "import", "--force", WeightFile().write(tmp_path, "net.pb.gz"), "--models-dir", folder)
    (folder / "other.toml").write_text((folder / "net.toml").read_text())
    refused = run("models", "remove", "net", "--models-dir", folder, input="n\n")
    assert (refused.exit_code, (folder / "net.toml").exists()) == (1, True)
    assert run("models", "remove", "net", "--yes", "--models-dir", folder).output.count("deleted: ") == 1
    assert "other: keeps its contract" in run("models", "check", "other", "--models-dir", folder).output
    assert run("models", "remove", "other", "--yes", "--models-dir", folder).output.count("deleted: ") == 2
    assert "is a shipped model and cannot be removed" in run("models", "remove", shipped(), "--yes").output
