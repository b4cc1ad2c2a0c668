"""What a program that forks would lose: the answers to its own questions. Processes on one connection mix them up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.client.forking import KINDS
from tests.networks import write_net
from tests.processes import ROOT, environment, served

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real service."""
    models = write_net(tmp_path_factory.mktemp("models")).parent
    with served(models, "--workers", "1") as (_, port):
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("kind", KINDS)
def test_forked_processes_get_their_own_answers(service: str, kind: str) -> None:
    # Python 3.12 and later warn of a fork beside a thread, which `Client` has for its event loop.
    warned = "ignore:This process (pid=:DeprecationWarning:__main__"
    command = [sys.executable, "-W", warned, "-m", "tests.client.forking", kind, service]
    path = os.pathsep.join([str(ROOT / "service"), str(ROOT)])
    done = subprocess.run(
        command, env=environment(PYTHONPATH=path), cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
