"""Audits that are stopped, killed and resumed, and errors of one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import chess
import pytest

from movemask.audit.files import Folder
from tests.audit.audits import GAMES, audited, run
from tests.audit.conftest import write_models
from tests.ground_truth import random_game
from tests.processes import running, started, until, workers


def auditing(out: Path, models: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    options = ("--models-dir", str(models), "--model", "net", "--out", str(out), "--jobs", "2", "--kinds", "raw")
    command = [sys.executable, "-m", "movemask", "audit", str(models.parent / "all.pgn"), *options]
    return started(command, stderr=subprocess.PIPE)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models."""
    return write_models(tmp_path_factory.mktemp("all"))


def write_games(file: Path, count: int) -> None:
    """Games of which 40 are a part of an audit."""
    games = (chess.Board().variation_san(random_game(seed, plies=10)) for seed in range(count))
    file.write_text("".join(f'[Event "x"]\n\n{game} *\n\n' for game in games))


def comparable(out: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return {name: summary[name] for name in ("models", "left_out")}


#: A worker that is killed, Ctrl-C, and what ends the command itself, with its exit codes.
ENDS = [(None, 1), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, -signal.SIGTERM)]


@pytest.mark.parametrize(
    ("ends", "games"), [([ENDS[2]], 300), pytest.param(ENDS, 1000, marks=pytest.mark.deep)], ids=["killed", "all"]
)
def test_interrupted_run_resumes_to_same_result(
    tmp_path: Path, models: Path, ends: list[tuple[signal.Signals | None, int]], games: int
) -> None:
    out, times = tmp_path / "out", dict[str, int]()
    write_games(models.parent / "all.pgn", games)

    def made() -> dict[str, int]:
        return {file.name: file.stat().st_mtime_ns for file in (out / "parts").glob("*.parquet")}

    for by, code in ends:
        with auditing(out, models) as process:
            until(lambda: len(made()) > len(times) or process.poll() is not None, "another part")  # noqa: B023
            assert process.poll() is None, "the run was over before it could be stopped"
            processes = workers(process.pid)
            assert len(processes) == 2
            if by is None:
                os.kill(min(processes), signal.SIGKILL)
                _, output = process.communicate(timeout=60)
                last_line = output.decode().strip().splitlines()[-1]
                assert last_line.startswith("Error: a worker process died, perhaps because memory ran out")
                assert b"Traceback" not in output
            else:
                process.send_signal(by)
            assert process.wait(60) == code
            until(lambda: not any(map(running, processes)), "the workers have ended")  # noqa: B023
        assert {name: made()[name] for name in times} == times  # what was done was not done again
        times = made()
    with auditing(out, models) as process:
        assert process.wait(120) == 0
    whole = tmp_path / "whole"
    audited(models.parent / "all.pgn", "--models-dir", models, "--model", "net", "--kinds", "raw", "--out", whole)
    assert comparable(out) == comparable(whole)


def test_audit_errors_are_one_line(tmp_path: Path, models: Path) -> None:
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
        ((*games, "--kinds", "loud"), "--kinds: no 'loud'; available: raw"),
        ((tmp_path / "x.pgn", *common[:2], "--model", "x"), "no model 'x'"),
        ((*elsewhere, "--out", other), "contains something else (thesis.tex)"),
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


def test_finished_audit_is_kept_unless_forced(tmp_path: Path, models: Path) -> None:
    (tmp_path / "x.pgn").write_text(GAMES)
    arguments = (tmp_path / "x.pgn", "--models-dir", models, "--model", "net", "--out", tmp_path / "out")
    audited(*arguments)
    again = run(*arguments)
    assert again.exit_code == 1
    assert "contains a finished audit" in again.output
    audited(*arguments, "--restart", "--limit", 1)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["models"]["net"]["positions"] == 10


def test_results_are_read_whatever_the_folder_name(tmp_path: Path) -> None:
    """pyarrow would unpack what is called .zst."""
    file = Folder(f"file://{tmp_path}/network.zst")
    file.write_bytes(b"as it is")
    assert file.read_text() == (tmp_path / "network.zst").read_text() == "as it is"
