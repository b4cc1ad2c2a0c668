"""Supervision of real services: each way in which a supervisor once stood still."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.networks import write_net
from tests.processes import call, free_port, run, running, served, serving, started, stopped, until, workers
from tests.server.edge.test_keys import new

pytestmark = [pytest.mark.deep, pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")]


def log_of(models: Path) -> str:
    return (models / "log.txt").read_text()


def answers(port: int, count: int = 8) -> bool:
    return all(call(port, "/v1/policy", {"moves": []})["turn"] == "white" for _ in range(count))


def test_full_pipe_of_standard_error(models: Path) -> None:
    """Each worker and the supervisor stood still in its own log; SIGTERM and a second one did nothing."""
    port = free_port()
    command = [sys.executable, "-m", "movemask", "serve", "--port", str(port), "--models-dir", str(models)]
    # A line that is written is 100 bytes: with a pipe that is full from the first, none can be.
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write, True)
    with started([*command, "--workers", "2"], cwd=models, stdout=write, stderr=write) as process:
        os.close(write)
        until(lambda: len(workers(process.pid)) == 2 and answers(port), "two workers serve")
        first = workers(process.pid)
        os.kill(min(first), signal.SIGKILL)
        until(lambda: len(workers(process.pid) - first) == 1, "it is replaced")
        second = workers(process.pid)
        for pid in second:
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(workers(process.pid) - second) == 2, "both are replaced")
        until(lambda: answers(port), "both are back")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    os.close(read)


def test_deleted_key_when_a_second_reload_is_refused(models: Path, tmp_path: Path) -> None:
    """A reload with a broken file of keys once left the old key valid in the workers that came later."""
    keys = tmp_path / "keys"
    kept, deleted = new(keys, "kept"), new(keys, "deleted")

    def statuses(key: str) -> set[int]:
        return {status(port, key) for _ in range(24)}

    options = ("--workers", "3", "--api-keys-file", str(keys))
    with served(models, *options) as (process, port):
        serving(models, 3, process.pid)
        assert (statuses(kept), statuses(deleted)) == ({200}, {200})
        assert run("keys", "delete", "deleted", "--file", keys).exit_code == 0
        process.send_signal(signal.SIGHUP)
        until(lambda: log_of(models).count(" serves\n") == 4, "the first new worker serves")
        keys.write_text("oops")
        process.send_signal(signal.SIGHUP)
        until(lambda: "not reloaded: MOVEMASK_API_KEYS_FILE: " in log_of(models), "the second is refused")
        until(lambda: ": reloaded\n" in log_of(models), "the first goes on")
        assert (statuses(kept), statuses(deleted)) == ({200}, {401})
        assert stopped(process) == 0


def status(port: int, key: str) -> int:
    """Of a request on a connection of its own."""
    try:
        call(port, "/v1/policy", {"moves": []}, Authorization=f"Bearer {key}")
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    return 200


@contextmanager
def slow_bodies(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Connections in the middle of a body."""
    head = (
        "POST /v1/policy HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    )
    with ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(count)]
        for connection in connections:
            connection.sendall(head.encode())
        yield connections


def test_reload_with_a_stopped_old_worker(models: Path) -> None:
    with served(models, "--workers", "2", "--drain-seconds", "1") as (process, port):
        before = serving(models, 2, process.pid)
        os.kill(min(before), signal.SIGSTOP)
        process.send_signal(signal.SIGHUP)
        until(lambda: ": reloaded\n" in log_of(models), "all are replaced")
        until(lambda: not any(map(running, before)), "the old ones have ended")
        assert answers(port)
        assert stopped(process) == 0


def test_kill_during_a_reload_with_unfinished_bodies(models: Path) -> None:
    """It was noticed after 52 seconds: the supervisor waited for the old ones."""
    with served(models, "--workers", "2", "--drain-seconds", "40") as (process, port), slow_bodies(port, 5):
        before = serving(models, 2, process.pid)
        process.send_signal(signal.SIGHUP)
        until(lambda: log_of(models).count(" serves\n") == 3, "the first one is replaced")
        (new,) = workers(process.pid) - before
        os.kill(new, signal.SIGKILL)
        until(lambda: f"worker {new} ended (SIGKILL); starting another\n" in log_of(models), "it is noticed", 20)
        until(lambda: ": reloaded\n" in log_of(models), "all are replaced")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_stop_and_second_signal_during_a_reload(models: Path) -> None:
    """For the 90 seconds of an old worker's drain, connections were taken, and no signal did anything."""

    def refused() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) != 0

    with served(models, "--workers", "2", "--drain-seconds", "90") as (process, port), slow_bodies(port, 24):
        serving(models, 2, process.pid)
        process.send_signal(signal.SIGHUP)
        until(lambda: log_of(models).count(" serves\n") == 3, "the first one is replaced")
        process.send_signal(signal.SIGTERM)
        until(refused, "new connections are refused", 20)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.parametrize("count", ["1", "2"])
def test_unfinished_bodies_at_the_end_of_a_drain_get_503(models: Path, count: str) -> None:
    """There were 60 lines of a traceback for each, and no answer."""
    with (
        served(models, "--workers", count, "--drain-seconds", "1") as (process, port),
        slow_bodies(port, 5) as connections,
    ):
        until(lambda: re.search(r"movemask_connections [5-9]", call(port, "/metrics")), "the workers have them")
        process.send_signal(signal.SIGTERM)
        for connection in connections:
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"urn:movemask:problem:shutting-down" in answer
        assert process.wait(60) == 0
    assert "Traceback" not in log_of(models)
    assert log_of(models).count("POST /v1/policy 503") == 5


def test_service_survives_repeated_sighup_and_sigkill(models: Path) -> None:
    """Each was a reload of its own, one after the other; the dead worker was not noticed in 60 seconds."""
    with served(models, "--workers", "2") as (process, port):
        before = serving(models, 2, process.pid)
        for _ in range(12):
            process.send_signal(signal.SIGHUP)
        os.kill(max(before), signal.SIGKILL)
        until(lambda: ": reloaded\n" in log_of(models), "all are replaced")
        until(lambda: len(workers(process.pid)) == 2, "there are two")
        assert not before & workers(process.pid)
        assert answers(port)
        assert stopped(process) == 0


def test_supervisor_without_descriptors(models: Path) -> None:
    """The dead worker was never replaced, and SIGTERM did nothing in 40 seconds."""
    with served(models, "--workers", "2") as (process, port):
        before = serving(models, 2, process.pid)
        used = max(map(int, os.listdir(f"/proc/{process.pid}/fd")))
        _, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used + 1, hard))
        os.kill(min(before), signal.SIGKILL)
        until(lambda: "too many open files; starting another in 4 s" in log_of(models), "it is tried again")
        assert answers(port)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (hard, hard))
        serving(models, 3, process.pid)
        assert answers(port)
        assert stopped(process) == 0


def test_default_model_broken_at_the_start(models: Path) -> None:
    """After a kill -9, replacements ended with exit code 3 for ever: they needed the default."""
    write_net(models, "other")
    (models / "net.onnx").write_bytes(b"half")
    with served_unready(models) as (process, port):
        before = serving(models, 1, process.pid)
        os.kill(min(before), signal.SIGKILL)
        serving(models, 2, process.pid)
        assert call(port, "/v1/policy", {"moves": [], "model": "other"})["model"]["name"] == "other"
        assert stopped(process) == 0


@contextmanager
def served_unready(models: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A service with one worker whose default model fails: `served` waits for one that is ready."""
    port = free_port()
    command = [sys.executable, "-m", "movemask", "serve", "--port", str(port), "--models-dir", str(models)]
    command += ["--workers", "1", "--default-model", "net"]
    with open(models / "log.txt", "wb") as log, started(command, cwd=models, stdout=log, stderr=log) as process:
        yield process, port


def test_models_folder_moved_away_and_back(models: Path, tmp_path: Path) -> None:
    """What a worker needs is away when it dies; the other serves on, and it is back when that is."""
    run = tmp_path / "run"
    run.mkdir()
    with served(run, "--models-dir", str(models), "--workers", "2") as (process, port):
        before = serving(run, 2, process.pid)
        models.rename(tmp_path / "away")
        os.kill(min(before), signal.SIGKILL)
        until(lambda: "; starting another in 2 s" in (run / "log.txt").read_text(), "it cannot start")
        assert answers(port)
        assert "movemask_workers_serving 1.0" in call(port, "/metrics")
        (tmp_path / "away").rename(models)
        after = serving(run, 3, process.pid)
        assert len(after) == 2
        assert stopped(process) == 0
    assert "Traceback" not in (run / "log.txt").read_text()
