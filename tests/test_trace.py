"""What a reader would lose: README's way of a FEN, in the order in which its files run."""

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
    """The files that README's steps name, in their order."""
    section = (ROOT / "README.md").read_text().partition("## How the pieces fit")[2]
    files: list[str] = []
    folder = ""
    for name in re.findall(r"`([\w/]+\.py)`", section[section.index("\n1. ") : section.index("\nBefore that: ")]):
        if "/" in name or ((Path(movemask.__file__).parent / name).exists() and name in ("evaluate.py", "columns.py")):
            folder = name.rpartition("/")[0]
        files.append(f"{folder}/{name.rpartition('/')[2]}".lstrip("/"))
    return files


def test_readme_names_the_files_of_a_request_in_the_order_in_which_they_run(named: list[str]) -> None:
    path = {"PYTHONPATH": f"{ROOT / 'service'}:{ROOT}"}
    command = [sys.executable, "-m", "tests.tracing"]
    done = subprocess.run(command, env=environment(**path), cwd=ROOT, capture_output=True, text=True, check=True)
    trace = json.loads(done.stdout)
    run = [*trace["before"], *trace["after"]]
    written = run.index("network/value.py") + 1
    shapes = named.index("schemas/answers.py")  # which are declared, not run
    assert named[:shapes] == run[:written]
    # What follows runs beside the reply, on threads of its own.
    assert set(named[shapes + 1 :]) == set(run[written:])
