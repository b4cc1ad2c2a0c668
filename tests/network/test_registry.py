"""The registry: contracts, failures, the default model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from movemask.errors import ContractError, ModelUnavailable, SettingsError, UnknownModel
from movemask.network.contract import read_contract
from movemask.network.registry import load_entry, load_registry
from tests.conftest import ROOT
from tests.networks import ONNX_TOML, write_fake, write_net

ROW = "[[card.strength]]\nelo = 900\nrating = 800\ntemperature = 1\n"


def test_onnxruntime_telemetry_is_off(models: Path, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from movemask.network.registry import load_entry; "
        "entry = load_entry(pathlib.Path(sys.argv[1]), 1); assert entry.model, entry.failure"
    )
    home = tmp_path / "home"
    home.mkdir()
    # Without these the runtime would hold its peace anyway, and the test could not fail.
    silencing = {"CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "XDG_CACHE_HOME"}
    environment = {name: value for name, value in os.environ.items() if name not in silencing}
    environment |= {"HOME": str(home), "PYTHONPATH": str(ROOT / "service")}
    subprocess.run([sys.executable, "-c", code, str(models / "net.toml")], env=environment, check=True)
    assert list(home.rglob("*")) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "trained_with_mask",
            "trained_with_maks",
            "net.toml: contract.trained_with_maks: no such key; did you mean 'trained_with_mask', which is missing\\?$",
        ),
        (
            'vocabulary = "movemask-1880"\ntrained',
            'vocabluary = "movemask-1880"\nhistory = "x"\ntrained',
            r"net.toml: contract.vocabluary: .* 'vocabulary', which is missing\? \(and 1 more\)$",
        ),
        ("mask = false", 'mask = "no"', "net.toml: contract.trained_with_mask: must be true or false, without quot"),
        ("softmaxed = false", "softmaxed = 0", "net.toml: outputs.value.softmaxed: must be true or false, without"),
        (
            "[contract]",
            "[elo]\nminimum = 2000\nmaximum = 1000\n[contract]",
            "net.toml: elo.minimum: 2000 is above maximum, 1000",
        ),
        ("[contract]", "[elo]\nminimum = 1600\n[contract]", "net.toml: elo.default: 1500 is not within 1600 to 5000"),
        ('logits = "logits"', 'logits = "logits"\nlogit = "x"', "net.toml: outputs.logit: no such key"),
        (
            'maia2-18"',
            'movemask-18"',
            "net.toml: contract.planes: no plane encoder 'movemask-18'; available: fen-77, lc0-112, maia2-18",
        ),
        ("movemask-1880", "uci", "net.toml: contract.vocabulary: no vocabulary 'uci'"),
        ("[inputs]", "[inputs", "net.toml: not TOML"),
        ('planes = "planes"', 'planes = "board"', "the contract names the input 'board'; the network has planes"),
        ("movemask-1880", "lc0-1858", r"output 'logits' is \[B, 1880\]; the contract asks for \[B, 1858\]"),
        ('planes = "maia2-18"', 'planes = "lc0-112"', r"input 'planes' is \[B, 18, 8, 8\]; the contract asks for"),
        ("[contract]", '[network]\nfile = "other.onnx"\n[contract]', "network.file: other.onnx: No such file"),
        ("[contract]", '[network]\nfile = "../x.onnx"\n[contract]', "network.file: must be the name of a file in"),
        ("[contract]", f'[network]\ndigest = "sha256:{"0" * 64}"\n[contract]', "network.digest: says sha256:0000"),
        ("[contract]", '[network]\ndigest = "abc"\n[contract]', "network.digest: String should match pattern"),
        ("[contract]", "[[card.strength]]\nelo = 900\n[contract]", "card.strength.0.rating: this key is missing"),
        ("[contract]", f"{2 * ROW}[contract]", "net.toml: card.strength: elo must increase from row to row"),
    ],
)
def test_broken_contract_names_key_or_tensor(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in ONNX_TOML
    entry = load_entry(write_net(tmp_path, toml=ONNX_TOML.replace(old, new, 1)), 1)
    assert entry.model is None
    assert re.search(words, str(entry.failure))


def test_file_that_is_not_onnx_or_toml(tmp_path: Path) -> None:
    file = write_net(tmp_path)
    (tmp_path / "net.onnx").write_bytes(b"not a network")
    failure = load_entry(file, 1).failure
    assert failure is not None
    assert failure.startswith("net.onnx: onnxruntime cannot load it: ")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ContractError, match=r"net\.toml: not TOML: it is not UTF-8 text"):
        read_contract(file)


def test_failing_model_leaves_others_served(tmp_path: Path) -> None:
    write_fake(tmp_path, "good")
    (tmp_path / "bad.toml").write_text(ONNX_TOML)
    registry = load_registry(tmp_path, None, 1)
    assert registry.default == "good"
    assert registry.get(None).name == "good"
    with pytest.raises(ModelUnavailable, match=r"model 'bad' failed its check and is not served: .*bad\.onnx"):
        registry.get("bad")
    with pytest.raises(UnknownModel, match="no model 'none'; available: bad, good"):
        registry.get("none")


def test_default_is_first_served_with_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broken experiment in the folder stops nobody."""
    (tmp_path / "bad.toml").write_text(ONNX_TOML)
    for name in ("good", "other"):
        write_fake(tmp_path, name)
    assert load_registry(tmp_path, None, 1).get(None).name == "good"
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "no default model is chosen: requests that name no model are answered by good" in warning


def test_recorded_default_is_not_replaced(tmp_path: Path) -> None:
    """After a restart the default, even a chosen one, was another network."""
    for name in ("alpha", "zebra"):
        write_fake(tmp_path, name)
    (tmp_path / "default").write_text("zebra\n")
    (tmp_path / "zebra.onnx").write_bytes(b"half")
    registry = load_registry(tmp_path, None, 1)
    with pytest.raises(ModelUnavailable, match=r"model 'zebra' failed its check and is not served: zebra\.onnx"):
        registry.get(None)
    (tmp_path / "zebra.toml").unlink()
    with pytest.raises(ModelUnavailable, match="the default model 'zebra' is not in the models folder; choose another"):
        load_registry(tmp_path, None, 1).get(None)
    assert load_registry(tmp_path, "alpha", 1).get(None).name == "alpha"


def test_folder_without_models_or_default_raises(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="models_dir: no model in"):
        load_registry(tmp_path, None, 1)
    with pytest.raises(SettingsError, match=r"models_dir: .* is not a folder; name one by --models-dir"):
        load_registry(tmp_path / "missing", None, 1)
    write_fake(tmp_path, "good")
    with pytest.raises(SettingsError, match="MOVEMASK_DEFAULT_MODEL: no model 'x'; available: good"):
        load_registry(tmp_path, "x", 1)
