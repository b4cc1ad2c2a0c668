"""What a user of Windows would lose, where chess GUIs are: commands that start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.networks import write_fake
from tests.processes import call, served, stopped

PROGRAM = str(ROOT / "tests" / "windows.py")


@pytest.mark.parametrize(
    ("command", "sent", "last"),
    [
        (["--help"], "", "  uci "),
        (["uci"], "uci\nposition startpos\ngo\nquit\n", "bestmove "),
        (["predict"], "", "leakage: raw "),
        (["annotate", "-"], "1. e4 e5 *\n", "(first choice), surprise"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_command_needs_nothing_that_windows_lacks(command: list[str], sent: str, last: str) -> None:
    done = subprocess.run([sys.executable, PROGRAM, *command], input=sent, capture_output=True, text=True, check=True)
    assert last in done.stdout


def test_the_service_needs_nothing_that_windows_lacks(tmp_path: Path) -> None:
    write_fake(tmp_path)
    with served(tmp_path, program=[PROGRAM]) as (process, port):
        assert len(call(port, "/v1/policy", {"fen": "startpos"})["moves"]) == 20
        assert stopped(process) == 0
