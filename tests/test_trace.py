"""docs/architecture.md: the path of a request, against a trace; the layers of packages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import movemask
from tests.conftest import ROOT
from tests.processes import environment


@pytest.fixture(scope="module")
def named() -> list[str]:
    """The files that the steps of the page name, in their order."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    return re.findall(r"`([\w/]+\.py)`", page[page.index("\n1. ") : page.index("\n## Processes")])


def test_architecture_names_files_of_request_in_order(named: list[str]) -> None:
    path = {"PYTHONPATH": f"{ROOT / 'service'}:{ROOT}"}
    command = [sys.executable, "-m", "tests.tracing"]
    process = subprocess.run(command, env=environment(**path), cwd=ROOT, capture_output=True, text=True, check=True)
    trace = json.loads(process.stdout)
    run = [*trace["before"], *trace["after"]]
    written = run.index("network/value.py") + 1
    shapes = named.index("schemas/answers.py")  # which are declared, not run
    assert named[:shapes] == run[:written]
    # What follows runs beside the reply, on threads of its own.
    assert set(named[shapes + 1 :]) == set(run[written:])


def test_architecture_numbers_layers() -> None:
    """Every package and module is in a row with the layer that it has in `pyproject.toml`."""
    page = (ROOT / "docs" / "architecture.md").read_text().partition("\n## Packages")[2]
    assert "`page/` is" in page
    outer, inner = page.split("inside `server/`:")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    package, server = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    for text, layers, folder in (
        (outer, package[1:], Path(movemask.__file__).parent),
        (inner, server, Path(movemask.__file__).parent / "server"),
    ):
        rows = re.findall(r"^\| (\d+) \| (.*?) \|", text, re.M)
        numbers = {name.strip("`"): int(number) for number, names in rows for name in names.split(", ")}
        expected = {
            f"{name}/" if (folder / name).is_dir() else f"{name}.py": number
            for number, layer in enumerate(layers, start=1)
            for name in layer.replace("movemask.", "").split(" | ")
        }
        assert numbers == expected
