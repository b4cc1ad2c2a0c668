"""What an operator would lose: an audit that can be stopped, killed and resumed, and that says what it cannot do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from movemask.audit.files import Folder
from tests.audit.audits import GAMES, audited, fens, run
from tests.audit.conftest import write_models
from tests.processes import running, started, until, workers

POSITIONS = 600 * 30  # in parts of 2,000, of which some wait ahead: a run can be stopped after two


def auditing(out: Path, models: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    options = ("--models-dir", str(models), "--model", "net", "--out", str(out), "--jobs", "2", "--kinds", "raw")
    command = [sys.executable, "-m", "movemask", "audit", str(models.parent / "x.fen"), *options]
    return started(command, stderr=subprocess.PIPE)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all, with the positions beside it, so that runs can be compared."""
    folder = tmp_path_factory.mktemp("all")
    (folder / "x.fen").write_text("\n".join(fens(600) * (POSITIONS // 600)))
    return write_models(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, models: Path) -> dict[str, Any]:
    """What a run comes to that nobody stops."""
    out = tmp_path_factory.mktemp("whole") / "out"
    audited(models.parent / "x.fen", "--models-dir", models, "--model", "net", "--kinds", "raw", "--out", out)
    return comparable(out)


@contextmanager
def halfway(tmp_path: Path, models: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An audit into out/ that has done two parts or more, and is not through."""
    parts = tmp_path / "out" / "parts"
    with auditing(tmp_path / "out", models) as process:
        until(lambda: len(list(parts.glob("*.parquet"))) >= 2 or process.poll() is not None, "two parts")
        assert process.poll() is None, "the run was over before it could be stopped"
        yield process


def comparable(out: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return {name: summary[name] for name in ("models", "left_out")}


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_stopped_goes_on_and_comes_to_the_same(
    tmp_path: Path, models: Path, whole: dict[str, Any], by: signal.Signals
) -> None:
    with halfway(tmp_path, models) as process:
        process.send_signal(by)
        assert process.wait(60) == (130 if by == signal.SIGINT else -signal.SIGKILL)
    parts = tmp_path / "out" / "parts"
    kept = {file.name: file.stat().st_mtime_ns for file in parts.glob("*.parquet")}
    assert kept
    seen: dict[str, int] = {}
    with auditing(tmp_path / "out", models) as again:
        while again.poll() is None:
            for file in list(parts.glob("*.parquet")):
                try:
                    seen[file.name] = file.stat().st_mtime_ns
                except FileNotFoundError:
                    break
            time.sleep(0.02)
        assert again.returncode == 0
    assert {name: seen[name] for name in kept} == kept  # what was done was not done again
    assert comparable(tmp_path / "out") == whole


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_an_audit_that_is_killed(tmp_path: Path, models: Path, by: signal.Signals) -> None:
    with halfway(tmp_path, models) as process:
        begun = workers(process.pid)
        assert len(begun) == 2
        process.send_signal(by)
        process.wait()
        until(lambda: not any(map(running, begun)), "the workers have ended")


def test_a_worker_that_is_killed_is_told_in_one_line_and_nothing_is_counted_twice(
    tmp_path: Path, models: Path, whole: dict[str, Any]
) -> None:
    with halfway(tmp_path, models) as process:
        os.kill(min(workers(process.pid)), signal.SIGKILL)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 1
    assert said.decode().strip().splitlines()[-1].startswith("Error: a worker process died, perhaps for want of memory")
    assert b"Traceback" not in said
    with auditing(tmp_path / "out", models) as again:
        assert again.wait(120) == 0
    assert comparable(tmp_path / "out") == whole


def test_what_cannot_be_done_is_told_in_one_line(tmp_path: Path, models: Path) -> None:
    (tmp_path / "x.pgn").write_text(GAMES)
    (tmp_path / "empty.fen").write_text("# nothing\n")
    common = ("--models-dir", models, "--model", "net", "--out", tmp_path / "out")
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("mine")
    (tmp_path / "file").write_text("mine")
    games, elsewhere = (tmp_path / "x.pgn", *common), (tmp_path / "x.pgn", *common[:4])
    for arguments, words in [
        ((tmp_path / "no.pgn", *common), "no.pgn: no such file"),
        ((tmp_path, *common), "Is a directory"),
        ((*games, "--fail-above", "raw.p98=1"), "--fail-above 'raw.p98=1': write KIND.STATISTIC=VALUE"),
        ((*games, "--fail-above", "rounded.max=1", "--kinds", "raw"), "rounded is not among --kinds"),
        ((*games, "--kinds", "loud"), "--kinds: no 'loud'; there are raw"),
        ((tmp_path / "x.pgn", *common[:2], "--model", "x"), "no model 'x'"),
        ((*elsewhere, "--out", other), "holds something else (thesis.tex)"),
        ((tmp_path / "empty.fen", *common), "no position to audit"),
        ((*elsewhere, "--out", tmp_path / "file"), "cannot be written: "),
        ((*elsewhere, "--out", tmp_path / "file" / "in"), "cannot be written: Not a directory"),
        ((*elsewhere, "--out", "/proc/movemask"), "--out /proc/movemask: cannot be written: "),
        ((tmp_path / "x.pgn", sys.executable, *common), "binary data, neither a PGN nor a list of FENs"),
    ]:
        result = run(*arguments)
        assert result.exit_code == 1, words
        assert words in result.output
        assert all(len(line) < 400 for line in result.output.splitlines())
        assert isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.output
    assert (other / "thesis.tex").read_text() == "mine"


def test_a_finished_audit_is_not_written_over_unless_asked_to(tmp_path: Path, models: Path) -> None:
    (tmp_path / "x.pgn").write_text(GAMES)
    arguments = (tmp_path / "x.pgn", "--models-dir", models, "--model", "net", "--out", tmp_path / "out")
    audited(*arguments)
    again = run(*arguments)
    assert again.exit_code == 1
    assert "holds a finished audit" in again.output
    audited(*arguments, "--restart", "--limit", 1)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["models"]["net"]["positions"] == 10


def test_a_file_is_read_as_it_was_written_whatever_its_name(tmp_path: Path) -> None:
    """pyarrow would unpack what is called .zst."""
    file = Folder(f"file://{tmp_path}/network.zst")
    file.write_bytes(b"as it is")
    assert file.read_text() == (tmp_path / "network.zst").read_text() == "as it is"
