"""`movemask audit --ray`: the same figures as on one machine, also when processes and nodes die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import chess
import pytest
import zstandard

from movemask.errors import MissingExtra, require
from tests.audit.clusters import compared, done, game, needs_ray, table
from tests.audit.conftest import write_models
from tests.audit.nodes import Nodes, nodes
from tests.processes import environment, free_port, started, until

pytestmark = [pytest.mark.ray, needs_ray]

CUT = ("--kinds", "raw,multiplied,served", "--every", "3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Games in files of several kinds, one of them damaged, and a network."""
    folder = tmp_path_factory.mktemp("cluster")
    write_models(folder)
    text = [game(number) for number in range(1200)]
    (folder / "a.pgn").write_text("".join(text[:800]))
    frames = ["".join(text[at : at + 6]).encode() for at in range(800, 1200, 6)]
    (folder / "b.pgn.zst").write_bytes(b"".join(map(zstandard.compress, frames)))
    (folder / "cut.pgn.zst").write_bytes(zstandard.compress("".join(text[:80]).encode())[:-50])
    (folder / "noise.pgn").write_bytes(bytes(range(256)) * 10)
    (folder / "x.fen").write_text("".join(chess.Board().fen() + "\n" for _ in range(50)) + "no position\n")
    return folder


@pytest.fixture(scope="module")
def client_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def cluster(client_port: int) -> Iterator[Nodes]:
    with nodes(3, client=client_port) as running:
        yield running


def command(out: str, *options: str, files: Sequence[str] = ("a.pgn", "b.pgn.zst")) -> list[str]:
    networks = ("--models-dir", "m", "--model", "net")
    return [sys.executable, "-m", "movemask", "audit", *files, *networks, *CUT, "--out", out, *options]


@contextmanager
def begun(folder: Path, cluster: Nodes, out: str) -> Iterator[subprocess.Popen[bytes]]:
    """An audit on the cluster that has made a part, and has more to make."""
    arguments = command(out, "--ray", cluster.address, "--progress", "json")
    with started(arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        parts = folder / out / "parts"
        until(lambda: any(parts.glob("*.parquet")) or process.poll() is not None, "a part", 240)
        assert process.poll() is None, process.stdout and process.stdout.read()
        yield process


@pytest.fixture(scope="module")
def local(folder: Path) -> str:
    done(folder, command("local"))
    return "local"


def test_ray_matches_one_machine(folder: Path, cluster: Nodes, local: str) -> None:
    files = ("a.pgn", "cut.pgn.zst", "noise.pgn", "b.pgn.zst", "x.fen")
    done(folder, command("local-all", "--keep-going", files=files))
    output = done(folder, command("ray-all", "--ray", cluster.address, "--progress", "json", files=files))
    compared(folder, "local-all", "ray-all")
    assert "left out: file that cannot be read to its end: 2" in output
    assert "cut.pgn.zst: cannot be read to its end" in output
    assert "noise.pgn: binary data" in output
    progress = [json.loads(line) for line in output.splitlines() if line.startswith('{"file"')]
    assert progress[-1]["positions"] == table(folder / "ray-all").num_rows
    assert len({(one["file"], one["chunk"]) for one in progress}) == len(progress)
    done(folder, command("local-limit", "--limit", "875"))
    done(folder, command("ray-limit", "--ray", cluster.address, "--limit", "875"))
    compared(folder, "local-limit", "ray-limit")


@pytest.mark.parametrize("dies", ["worker", "node"])
def test_ray_survives_killed_worker_and_node(folder: Path, cluster: Nodes, local: str, dies: str) -> None:
    with begun(folder, cluster, dies) as process:
        if dies == "node":
            cluster.kill()
        for pid in working() if dies == "worker" else ():
            os.kill(pid, signal.SIGKILL)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    if dies == "node":
        cluster.add()
    compared(folder, local, dies)


def working() -> list[int]:
    """The processes that evaluate chunks at this moment."""
    processes = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"ray::_part" in file.read_bytes():
                processes.append(int(file.parent.name))
        except OSError:
            continue
    assert processes
    return processes


def test_ray_resumes_after_killed_driver(folder: Path, cluster: Nodes, local: str) -> None:
    with begun(folder, cluster, "driver") as process:
        process.kill()
        process.wait()
    output = done(folder, command("driver", "--ray", cluster.address, "--progress", "json"))
    assert "driver: resuming an earlier run" in output
    assert '"fresh": false' in output
    compared(folder, local, "driver")


def test_ray_client_matches_one_machine(folder: Path, cluster: Nodes, client_port: int, local: str) -> None:
    output = done(folder, command("client", "--ray", f"ray://127.0.0.1:{client_port}", "--progress", "json"))
    assert "Traceback" not in output
    compared(folder, local, "client")


def test_ray_names_games_that_kill_their_process(folder: Path, cluster: Nodes) -> None:
    """As a network does that crashes on some input: here a file of the networks that ends the process that reads it."""
    (folder / "crash").mkdir()
    (folder / "crash" / "sitecustomize.py").write_text(CRASH)
    arguments = command("crashed", "--ray", "local", "--jobs", "1")
    path = f"{folder / 'crash'}{os.pathsep}{environment()['PYTHONPATH']}"
    process = subprocess.run(
        arguments, cwd=folder, env=environment(PYTHONPATH=path), capture_output=True, text=True, timeout=500
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "left out: game or line in a chunk that ended its process: " in process.stderr
    assert "a.pgn: 1 to " in process.stderr


#: Ends any process that plays through the first game.
CRASH = """
import os, sys, chess.pgn
read = chess.pgn.read_game
def crash(handle, **options):
    game = read(handle, **options)
    if game is not None and game.headers.get("WhiteElo") == "1000":
        os._exit(1)
    return game
chess.pgn.read_game = crash
"""


def test_ray_errors_are_one_line(folder: Path) -> None:
    for options, words in (
        (("--ray", "127.0.0.1:1"), "--ray 127.0.0.1:1: "),
        (("--ray", "ray://127.0.0.1"), "--ray ray://127.0.0.1: "),
        (("--ray", "local", "--gpus", "64"), "--gpus 64: the cluster has "),
    ):
        output = done(folder, command("none", *options), 1)
        assert words in output
        assert "Traceback" not in output


def test_ray_token_missing(folder: Path, cluster: Nodes, client_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE")
    for address in (cluster.address, f"ray://127.0.0.1:{client_port}"):
        output = done(folder, command("none", "--ray", address), 1)
        assert "set RAY_AUTH_MODE=token" in output
        assert "Traceback" not in output


def test_ray_not_installed_names_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("movemask.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"--ray needs ray: pip install 'movemask\[ray\]'"):
        require("ray", "--ray")
