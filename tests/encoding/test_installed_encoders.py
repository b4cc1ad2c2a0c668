"""Plane encoders of other packages: the documented example, and the faults that are named."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import chess
import numpy as np
import onnxruntime as ort
import pytest

from movemask.board.position import Position
from movemask.encoding.encoders import plane_encoder
from movemask.encoding.installed_encoders import installed_encoder
from movemask.errors import ContractError
from movemask.network.registry import load_entry
from tests.conftest import ROOT
from tests.networks import NO_VALUE, Tensor, write_named

FEN = "r3k2r/pppq1ppp/2npbn2/2b1p3/2B1P3/2NPBN2/PPPQ1PPP/R3K2R b KQkq - 7 8"


def example(name: str) -> str:
    """A file of the example in docs/models.md."""
    blocks = re.findall(r"```\w+\n# (\S+)\n(.*?)```", (ROOT / "docs" / "models.md").read_text(), re.DOTALL)
    return str(dict(blocks)[name])


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """The Python of a new environment with the example's package, which sees this environment's packages too."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "my_encoders.py"):
        (source / name).write_text(example(name))
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    venv.create(tmp_path / "fresh", symlinks=True)
    (site,) = (tmp_path / "fresh").glob("lib/*/site-packages")
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    here = [path for path in sys.path if path.endswith("site-packages")]
    (site / "here.pth").write_text("\n".join([*here, str(ROOT / "service")]))
    return tmp_path / "fresh" / "bin" / "python"


def test_documented_encoder_in_a_fresh_environment(fresh: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    write_named(models / "net.onnx", [Tensor("planes", (13, 8, 8))], [Tensor("logits", (1880,))])
    (models / "net.toml").write_text(NO_VALUE.replace("maia2-18", "my-planes-13"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(fresh), "-m", "movemask", "predict", FEN, "--models-dir", str(models), "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    answered = {move["uci"]: move["probability"] for move in json.loads(done.stdout)["moves"]}
    namespace: dict[str, object] = {}
    exec(example("my_encoders.py"), namespace)
    encoder, position = namespace["ENCODER"], Position.read(FEN)
    session = ort.InferenceSession(str(models / "net.onnx"), providers=["CPUExecutionProvider"])
    logits = session.run(["logits"], {"planes": encoder.encode([position])})[0][0].astype(float)  # type: ignore[attr-defined]
    slots = plane_slots(position)
    weights = {uci: np.exp(logits[slot]) for uci, slot in slots.items()}
    assert answered == {uci: pytest.approx(weight / sum(weights.values()), rel=1e-5) for uci, weight in weights.items()}
    failure = load_entry(models / "net.toml", 1).failure or ""
    assert "contract.planes: no plane encoder 'my-planes-13'; available: fen-77" in failure


def plane_slots(position: Position) -> dict[str, int]:
    from movemask.encoding.vocabularies import vocabulary

    moves, slots = vocabulary("movemask-1880").legal_slots(position)
    return dict(zip([move.uci() for move in moves], slots.tolist(), strict=True))


FAULTS = """
import numpy as np
class Good:
    shape, dtype, uses_history = (2, 8, 8), "float32", True
    def encode(self, positions):
        assert all(position.history[0] is position.board for position in positions)
        return np.stack([np.full(self.shape, len(position.history), self.dtype) for position in positions])
class Flat(Good):
    def encode(self, positions): return super().encode(positions)[:, 0]
class Wide(Good):
    def encode(self, positions): return super().encode(positions).astype("float64")
class Nan(Good):
    def encode(self, positions): return super().encode(positions) * np.nan
class Raising(Good):
    def encode(self, positions): raise KeyError("e4")
class Shapeless:
    dtype, uses_history = "float32", False
good, flat, wide, nan, raising, shapeless = Good(), Flat(), Wide(), Nan(), Raising(), Shapeless()
"""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on sys.path with a package of faulty encoders."""
    names = ["good", "flat", "wide", "nan", "raising", "shapeless"]
    info = tmp_path / "faulty-1.dist-info"
    info.mkdir()
    (tmp_path / "faulty.py").write_text(FAULTS)
    points = [*(f"{name} = faulty:{name}" for name in names), "absent = faulty:no_such", "missing = no_such:x"]
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1\n")
    (info / "entry_points.txt").write_text("\n".join(["[movemask.encoders]", *points]))
    monkeypatch.syspath_prepend(str(tmp_path))
    installed_encoder.cache_clear()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("flat", "plane encoder 'flat': encode gave float32 (8, 8, 8); it declares float32 (8, 2, 8, 8)"),
        ("wide", "plane encoder 'wide': encode gave float64 (8, 2, 8, 8); it declares float32"),
        ("nan", "input 'planes': nan gives NaN or infinity"),
        ("raising", "plane encoder 'raising': encode failed: KeyError: 'e4'"),
        ("shapeless", "contract.planes: plane encoder 'shapeless' cannot be loaded from faulty:shapeless: AttributeE"),
        ("absent", "contract.planes: plane encoder 'absent' cannot be loaded from faulty:no_such: AttributeError"),
        ("missing", "contract.planes: plane encoder 'missing' cannot be loaded from no_such:x: ModuleNotFoundError"),
        ("other", "contract.planes: no plane encoder 'other'; available: fen-77, "),
    ],
)
def test_faulty_encoder_is_named(name: str, words: str, faulty: Path) -> None:
    write_named(faulty / "net.onnx", [Tensor("planes", (2, 8, 8))], [Tensor("logits", (1880,))])
    (faulty / "net.toml").write_text(NO_VALUE.replace("maia2-18", name))
    assert words in str(load_entry(faulty / "net.toml", 1).failure)


def test_encoder_gets_the_history_newest_first(faulty: Path) -> None:
    position = Position.read(moves=["e2e4", "e7e5"])
    encoder = plane_encoder("good")
    assert encoder.encode(position)[0, 0, 0] == 3
    assert encoder.uses_history
    with pytest.raises(ContractError, match=r"'none'; available: .*absent, flat, good"):
        plane_encoder("none")
    assert position.board.fullmove_number == 2
    assert chess.STARTING_FEN
