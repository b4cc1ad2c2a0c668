"""Forked processes: each gets its own answers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.client.forking import KINDS
from tests.parts import part_of
from tests.processes import ROOT, environment

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.mark.parametrize("kind", part_of(KINDS, 2))
def test_forked_processes_get_their_own_answers(service: int, kind: str) -> None:
    # Python 3.12 and later warn of a fork beside a thread, which `Client` has for its event loop.
    warned = "ignore:This process (pid=:DeprecationWarning:__main__"
    command = [sys.executable, "-W", warned, "-m", "tests.client.forking", kind, f"http://127.0.0.1:{service}"]
    path = os.pathsep.join([str(ROOT / "service"), str(ROOT)])
    done = subprocess.run(
        command, env=environment(PYTHONPATH=path), cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
