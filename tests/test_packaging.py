"""What a user would lose: an installation that serves from any folder, with pins that say what they install."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree and unpacked as pip would."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_serves_the_shipped_network_from_any_folder(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "service", "predict", "--json"]
    shown = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    answer = json.loads(shown.stdout)
    assert answer["model"]["name"] == "movemask-2"
    assert len(answer["moves"]) == 20
    listed = [sys.executable, "-m", "service", "models", "list"]
    assert (
        b"* movemask-2" in subprocess.run(listed, cwd=tmp_path, env=environment, check=True, capture_output=True).stdout
    )


def test_an_installed_packages_models_are_not_written_to(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    folder = installed / "service" / "shipped_models"
    (tmp_path / "games.pgn").write_text("1. e4 e5 *\n")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    for named in ([], ["--models-dir", str(folder)]):
        command = [sys.executable, "-m", "service", "calibrate", "games.pgn", *named]
        told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert told.returncode == 1
        assert told.stderr.startswith(
            f"Error: {folder}: the shipped models are not written to; name a folder of your own"
        )
        assert len(told.stderr.splitlines()) == 1
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_the_wheel_has_its_licence_its_command_and_no_torch(installed: Path) -> None:
    (metadata,) = installed.glob("*.dist-info/METADATA")
    text = metadata.read_text()
    assert "License-Expression: GPL-3.0-or-later" in text
    needed = [line for line in text.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert not any("torch" in line for line in needed)
    (commands,) = installed.glob("*.dist-info/entry_points.txt")
    assert "movemask = service.cli:main" in commands.read_text()
    assert {path.name for path in installed.iterdir()} == {"service", metadata.parent.name}


@pytest.mark.parametrize("file", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda file: file.name)
def test_pins_have_hashes_and_no_index_address(file: Path) -> None:
    text = file.read_text()
    assert not re.search(r"https?://|index-url|find-links", text)
    entries = re.findall(r"^[A-Za-z0-9_.-]+(?:\[[^\]]+\])?==.*(?:\n    .*)*", text, re.M)
    assert entries
    assert all("--hash=sha256:" in entry for entry in entries)
    assert ("\ntorch==" in text) == (file.name == "training.txt")


def test_the_service_imports_no_torch() -> None:
    code = "import sys, service.cli, service.api.app; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
