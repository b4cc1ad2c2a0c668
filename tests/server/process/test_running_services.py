"""Runtime folders of services, and `movemask reload`, which finds a service by them and waits for the outcome."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from movemask.errors import SettingsError
from movemask.server.process.reloads import Reload, write_reloads
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


def test_start_removes_the_folder_of_a_killed_service(temporary: Path) -> None:
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


def test_reload_by_address() -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: received.append(number))
    try:
        with runtime_folder("http://127.0.0.1:1"), runtime_folder("http://127.0.0.1:2"):
            result = run("reload")
            assert result.exit_code == 1
            assert result.output.startswith("Error: name one of the services: http://127.0.0.1:")
            result = run("reload", "http://127.0.0.1:9")
            assert "no service runs here on http://127.0.0.1:9: " in result.output
            assert not received
            assert run("reload", "http://127.0.0.1:2", "--no-wait").exit_code == 0
            assert len(received) == 1
    finally:
        signal.signal(signal.SIGHUP, before)


def test_second_service_on_one_address_is_refused() -> None:
    """With several workers each of both services got some of the requests."""
    refused = rf"process {os.getpid()}, another movemask, has http://127\.0\.0\.1:1, or will .*; give another --port"
    with runtime_folder("http://127.0.0.1:1"):
        with pytest.raises(SettingsError, match=refused), runtime_folder("http://127.0.0.1:1"):
            pass
        assert len(running_services()) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_folder_of_another_user_is_refused(temporary: Path) -> None:
    base = temporary / f"movemask-{os.geteuid()}"
    base.mkdir()
    os.chown(base, 12345, 12345)
    with pytest.raises(Exception, match=r"TMPDIR: .* belongs to another user"), runtime_folder("x"):
        pass


def test_start_while_another_service_ends(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start once failed because a folder was removed between its listing and its opening."""
    listed = Path.glob

    def list_and_end(base: Path, pattern: str) -> list[Path]:
        folders = [*listed(base, pattern)]
        for folder in folders:
            folder.rmdir()
        return folders

    base = temporary / f"movemask-{os.geteuid()}"
    (base / "ending").mkdir(parents=True)
    monkeypatch.setattr(Path, "glob", list_and_end)
    with runtime_folder("http://127.0.0.1:1") as folder:
        monkeypatch.undo()
        assert [*base.iterdir()] == [folder]


@contextmanager
def service(*outcomes: Reload, ends: bool = False) -> Iterator[None]:
    """A running service that was reloaded once, and gets these outcomes when it is told to reload again."""
    with runtime_folder("http://127.0.0.1:1") as folder:
        assert folder is not None
        write_reloads(folder, [Reload(1, "refused", reason="an older reload")])

        def reload(number: int, frame: object) -> None:
            write_reloads(folder, [Reload(1, "refused", reason="an older reload"), *outcomes])
            if ends:
                (folder / "service").unlink()

        before = signal.signal(signal.SIGHUP, reload)
        try:
            yield
        finally:
            signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("outcomes", "code", "words"),
    [
        pytest.param([Reload(2, "reloaded")], 0, "the service on http://127.0.0.1:1 is reloaded", id="reloaded"),
        pytest.param([Reload(2, "refused", reason="line 1")], 1, "Error: not reloaded: line 1\n", id="refused"),
        pytest.param(
            [Reload(2, "superseded"), Reload(3, "reloaded")],
            0,
            "the service on http://127.0.0.1:1 is reloaded",
            id="superseded",
        ),
        pytest.param(
            [Reload(2, "reloaded"), Reload(3, "refused", reason="a later one")],
            0,
            "the service on http://127.0.0.1:1 is reloaded",
            id="another-later",
        ),
        pytest.param(
            [Reload(2, outdated=2, reason="the new worker cannot serve: net.onnx")],
            1,
            "Error: not reloaded in 0.5 s, 2 workers left; the service goes on with it: "
            "the new worker cannot serve: net.onnx",
            id="timeout",
        ),
        pytest.param([], 1, "Error: the service on http://127.0.0.1:1 has not told in 0.5 s ", id="full-disk"),
    ],
)
def test_reload_waits_for_the_outcome(outcomes: list[Reload], code: int, words: str) -> None:
    with service(*outcomes):
        result = run("reload", "--timeout", 0.5)
    assert (result.exit_code, result.output[: len(words)]) == (code, words)


def test_reload_of_a_service_that_ends() -> None:
    with service(Reload(2), ends=True):
        result = run("reload")
    assert (result.exit_code, result.output) == (1, "Error: the service on http://127.0.0.1:1 has ended\n")


def test_reload_by_process_id() -> None:
    with service(Reload(2, "reloaded")):
        assert run("reload", os.getpid()).exit_code == 0
        assert "no service runs here as process 1: http" in run("reload", 1).output
