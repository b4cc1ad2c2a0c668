"""A folder of models to audit, and plots that cost nothing where the report is not what is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.networks import ONNX_TOML, write_fake, write_onnx


@pytest.fixture(autouse=True)
def _plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots take two of an audit's four seconds."""
    if not request.module.__name__.endswith("test_report"):
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, out, **_: out.write("<svg></svg>"))


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return write_models(tmp_path)


def write_models(tmp_path: Path) -> Path:
    """The folder m/ with a network `net` and a fake `masked`."""
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "net.toml").write_text(ONNX_TOML)
    write_onnx(folder / "net.onnx")
    write_fake(folder, "masked", trained_with_mask=True)
    return folder
