"""What an operator would lose: workers that serve whatever happens to another, and a reload that loses no request."""

from __future__ import annotations

import http.client
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from uvicorn import Config, Server
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from tests.network.test_trial import write_crash
from tests.networks import NO_VALUE, write_net
from tests.processes import call, environment, running, served, serving, started, stopped, until, workers
from tests.server.edge.test_keys import new

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def test_uvicorn_has_what_the_supervisor_relies_on() -> None:
    for owner, names in (
        (Multiprocess, "init_processes keep_subprocess_alive handle_hup restart_all terminate_all join_all run"),
        (Process, "start is_ready ping terminate kill pid exitcode"),
        (Config, "configure_logging load"),
    ):
        for name in names.split():
            assert hasattr(owner, name), (owner, name)
    assert list(inspect.signature(Process).parameters) == ["config", "sockets"]
    assert list(inspect.signature(Process.is_ready).parameters) == ["self", "timeout"]
    assert STARTUP_FAILURE == 3
    run = inspect.getsource(Multiprocess.run)
    assert run.index("init_processes") < run.index("keep_subprocess_alive") < run.index("terminate_all")
    assert run.index("terminate_all") < run.index("join_all")
    assert "wait_until_ready(self.config.timeout_worker_healthcheck" in inspect.getsource(Multiprocess.restart_all)
    assert "for sock in sockets" in inspect.getsource(Server.startup)
    assert "sock.close()" in inspect.getsource(Server.shutdown)


def log_of(folder: Path) -> str:
    return (folder / "log.txt").read_text()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where the service runs and its log is, beside its models."""
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("away", ["keys", "models", "database"])
def test_what_a_start_needs_is_away_when_a_worker_dies(models: Path, run: Path, tmp_path: Path, away: str) -> None:
    keys, data = tmp_path / "keys", tmp_path / "data"
    key = new(keys, "one")
    data.mkdir()
    options = ("--models-dir", str(models), "--api-keys-file", str(keys), "--workers", "2")
    with served(run, *options, "--database-url", f"sqlite:///{data}/movemask.db") as (process, port):
        begun = serving(run, 2, process.pid)
        content = keys.read_bytes()
        if away == "keys":
            keys.write_bytes(content[:-10])  # half written
        else:
            folder = models if away == "models" else data
            folder.rename(tmp_path / "away")
        killed = min(begun)
        os.kill(killed, signal.SIGKILL)
        until(
            lambda: "; starting another in " in log_of(run) or log_of(run).count(" serves\n") > 2,
            "the replacement cannot start, or needs none of it",
        )
        for _ in range(20):  # each on a connection of its own
            assert call(port, "/v1/policy", {"moves": []}, Authorization=f"Bearer {key}")["turn"] == "white"
        if away == "keys":
            keys.write_bytes(content)
        else:
            (tmp_path / "away").rename(folder)
        after = serving(run, 3, process.pid)
        assert len(after) == 2
        assert begun - {killed} < after
        assert stopped(process) == 0
    assert "Traceback" not in log_of(run)


class Client:
    """Asks on a connection that it keeps, as HTTP clients do: a request whose connection ends without a byte of an
    answer is sent once more."""

    def __init__(self, port: int, key: str) -> None:
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def status(self) -> int:
        for last in (False, True):
            try:
                self._connection.request("POST", "/v1/policy", json.dumps({"moves": []}), self._headers)
                answer = self._connection.getresponse()
                answer.read()
            except (http.client.RemoteDisconnected, ConnectionError):
                self._connection.close()
                if last:
                    raise
            else:
                return answer.status
        raise AssertionError

    def close(self) -> None:
        self._connection.close()


def test_a_reload_under_load_loses_no_request_and_brings_what_has_changed(
    models: Path, run: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    kept, revoked = new(keys, "kept"), new(keys, "revoked")
    options = ("--models-dir", str(models), "--api-keys-file", str(keys), "--workers", "2")
    with served(run, *options) as (process, port):
        begun = serving(run, 2, process.pid)
        reloaded = threading.Event()

        def ask() -> set[int]:
            client, found = Client(port, kept), set()
            while not reloaded.is_set():
                found.add(client.status())
            client.close()
            return found

        with ThreadPoolExecutor(16) as pool:
            asking = [pool.submit(ask) for _ in range(16)]
            write_net(models, "second")
            keys.write_text("".join(line for line in keys.read_text().splitlines(True) if "revoked" not in line))
            process.send_signal(signal.SIGHUP)
            try:
                until(lambda: ": reloaded\n" in log_of(run), "all workers are replaced")
            finally:
                reloaded.set()
            assert [one.result() for one in asking] == [{200}] * 16
        after = serving(run, 4, process.pid)
        assert len(after) == 2
        assert not begun & after
        for _ in range(16):  # by each worker
            answer = call(port, "/v1/policy", {"moves": [], "model": "second"}, Authorization=f"Bearer {kept}")
            assert answer["model"]["name"] == "second"
            with pytest.raises(urllib.error.HTTPError, match="401") as refused:
                call(port, "/v1/policy", {"moves": []}, Authorization=f"Bearer {revoked}")
            refused.value.close()
        assert stopped(process) == 0


@pytest.mark.parametrize("broken", ["net.toml", "net.onnx", "keys"])
def test_a_reload_with_a_broken_file_keeps_the_workers_and_names_the_file(
    models: Path, run: Path, tmp_path: Path, broken: str
) -> None:
    keys = tmp_path / "keys"
    key = new(keys, "one")
    options = ("--models-dir", str(models), "--api-keys-file", str(keys), "--workers", "2")
    with served(run, *options) as (process, port):
        begun = serving(run, 2, process.pid)
        file = keys if broken == "keys" else models / broken
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])
        process.send_signal(signal.SIGHUP)
        until(lambda: ": not reloaded: 2 of 2 workers " in log_of(run), "the reload is given up")
        assert workers(process.pid) == begun
        assert any(broken in line for line in log_of(run).splitlines() if " ERROR " in line)
        for _ in range(8):
            call(port, "/v1/policy", {"moves": []}, Authorization=f"Bearer {key}")
        file.write_bytes(content)
        process.send_signal(signal.SIGHUP)
        until(lambda: ": reloaded\n" in log_of(run), "it is mended")
        assert stopped(process) == 0


def test_a_network_that_ends_its_process_is_named_in_the_last_line(models: Path, run: Path) -> None:
    write_crash(models / "crashes.onnx")
    (models / "crashes.toml").write_text(NO_VALUE)
    command = [sys.executable, "-m", "movemask", "serve", "--port", "0", "--models-dir", str(models)]
    with started(command, cwd=run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        *log, error = process.communicate(timeout=300)[0].decode().splitlines()
    assert process.returncode == 1
    assert f"opening model crashes: {models}/crashes.onnx" in log[-1]
    assert error.startswith("Error: a worker ended (SIGFPE) before it could serve; the log's last line says")


def test_a_lone_worker_is_reloaded_too(models: Path) -> None:
    with served(models, "--workers", "1") as (process, port):
        (before,) = serving(models, 1, process.pid)
        process.send_signal(signal.SIGHUP)
        until(lambda: ": reloaded\n" in log_of(models), "the worker is replaced")
        (after,) = serving(models, 2, process.pid)
        assert before != after
        assert call(port, "/livez") == {"status": "alive"}
        assert stopped(process) == 0


def test_a_terminal_that_is_closed_stops_the_service_in_order(models: Path) -> None:
    ours, terminal = os.openpty()
    command = [sys.executable, "-m", "movemask", "serve", "--port", "0", "--models-dir", str(models), "--workers", "2"]
    with started(command, cwd=models, stderr=terminal, stdout=terminal, env=environment()) as process:
        os.close(terminal)
        said = b""
        while not re.search(rb"listening on [\s\S]+worker \d+ serves", said):
            said += os.read(ours, 65_536)
        begun = workers(process.pid)
        os.close(ours)
        os.killpg(process.pid, signal.SIGHUP)
        assert process.wait(60) == 0
        assert not any(map(running, begun))
