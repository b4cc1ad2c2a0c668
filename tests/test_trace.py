"""docs/architecture.md: the path of a request, against a trace; the packages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
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


def test_architecture_lists_packages() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text().partition("\n## Packages")[2]
    package = Path(movemask.__file__).parent
    for folder in (package, package / "server"):
        names = {f"{child.name}/" if child.is_dir() else child.name for child in folder.iterdir()}
        names = {name for name in names if name.endswith(("/", ".py")) and not name.startswith("__")}
        assert {name for name in names if f"`{name}`" not in page} == set()
