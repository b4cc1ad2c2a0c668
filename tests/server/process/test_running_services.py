"""What an operator would lose: a `movemask reload` that finds the service, and no other process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from movemask.errors import SettingsError
from movemask.server.process.running_services import running_services, runtime_folder
from tests.processes import environment, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


KILLED = """
import os, signal
from movemask.server.process.running_services import runtime_folder
with runtime_folder("http://127.0.0.1:1"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_folder_of_a_service_that_was_killed_is_removed_at_the_next_start(temporary: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED], env=environment(TMPDIR=str(temporary)), check=False)
    (base,) = temporary.iterdir()
    (left,) = base.iterdir()
    assert (left / "service").read_text().endswith(" http://127.0.0.1:1")
    assert running_services() == []
    assert "no service runs here" in run("reload").output  # its process id may be another program's now
    with runtime_folder("http://127.0.0.1:2") as folder:
        assert [*base.iterdir()] == [folder]
        assert base.stat().st_mode & 0o777 == 0o700
        with runtime_folder("http://127.0.0.1:3"):  # that of one that runs stays
            assert len([*base.iterdir()]) == 2
    assert [*base.iterdir()] == []


def test_one_of_several_services_is_reloaded_by_its_address() -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: received.append(number))
    try:
        with runtime_folder("http://127.0.0.1:1"), runtime_folder("http://127.0.0.1:2"):
            told = run("reload")
            assert told.exit_code == 1
            assert told.output.startswith("Error: name one of the services: http://127.0.0.1:")
            told = run("reload", "http://127.0.0.1:9")
            assert "no service runs here on http://127.0.0.1:9: " in told.output
            assert not received
            assert run("reload", "http://127.0.0.1:2").exit_code == 0
            assert len(received) == 1
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_service_on_the_address_of_one_that_still_loads_its_models_is_refused() -> None:
    """With several workers each of both services got some of the requests."""
    refused = rf"process {os.getpid()}, another movemask, has http://127\.0\.0\.1:1, or will .*; give another --port"
    with runtime_folder("http://127.0.0.1:1"):
        with pytest.raises(SettingsError, match=refused), runtime_folder("http://127.0.0.1:1"):
            pass
        assert len(running_services()) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_of_another_user_is_refused(temporary: Path) -> None:
    base = temporary / f"movemask-{os.geteuid()}"
    base.mkdir()
    os.chown(base, 12345, 12345)
    with pytest.raises(Exception, match=r"TMPDIR: .* belongs to another user"), runtime_folder("x"):
        pass
