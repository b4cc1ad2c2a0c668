"""Reload of a real service: replaced workers, new keys and models, and no lost request.

One service does all; test_trials.py has the rare faults."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import sys
import tempfile
import threading
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.networks import write_net
from tests.processes import call, environment, run, served, serving, stopped, until, workers
from tests.server.edge.test_keys import new

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


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


def statuses(port: int, key: str, **body: object) -> set[int]:
    """Of eight requests, each on a connection of its own: of every worker."""
    codes = set()
    for _ in range(8):
        try:
            call(port, "/v1/policy", {"moves": [], **body}, Authorization=f"Bearer {key}")
            codes.add(200)
        except urllib.error.HTTPError as error:
            with error:
                codes.add(error.code)
    return codes


def metric(port: int, key: str, name: str) -> float:
    lines = call(port, "/metrics", Authorization=f"Bearer {key}").splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


def test_service_outlives_workers_and_reloads(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, keys = tmp_path / "run", tmp_path / "keys"
    folder.mkdir()
    kept, revoked = new(keys, "kept"), new(keys, "revoked")
    watch = new(keys, "watch", "metrics")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    options = ("--models-dir", str(models), "--api-keys-file", str(keys), "--workers", "2")

    def log() -> str:
        return (folder / "log.txt").read_text()

    with served(folder, *options, env=environment(TMPDIR=str(folder))) as (process, port):
        before = serving(folder, 2, process.pid)
        assert metric(port, watch, "movemask_workers_serving") == 2

        # A worker dies after the keys have changed: all workers agree until the reload.
        added = new(keys, "added")
        keys.write_text("".join(line for line in keys.read_text().splitlines(True) if "revoked" not in line))
        used = metric(port, watch, "process_cpu_seconds_total")
        os.kill(min(before), signal.SIGKILL)
        before = serving(folder, 3, process.pid)
        assert " ended (SIGKILL); starting another\n" in log()
        assert (statuses(port, added), statuses(port, revoked), statuses(port, kept)) == ({401}, {200}, {200})
        assert metric(port, watch, "process_cpu_seconds_total") >= used

        # A reload, under load.
        write_net(models, "second")
        reloaded = threading.Event()

        def ask() -> set[int]:
            client, codes = Client(port, kept), set()
            while not reloaded.is_set():
                codes.add(client.status())
            client.close()
            return codes

        with ThreadPoolExecutor(8) as pool:
            clients = [pool.submit(ask) for _ in range(8)]
            try:
                result = run("reload")
            finally:
                reloaded.set()
            assert (result.exit_code, result.output) == (0, f"the service on http://127.0.0.1:{port} is reloaded\n")
            until(lambda: ": reloaded\n" in log(), "the log says so")
            assert [client.result() for client in clients] == [{200}] * 8
        after = workers(process.pid)
        assert not before & after
        assert (statuses(port, added, model="second"), statuses(port, revoked)) == ({200}, {401})
        numbers = {re.sub(r"\D", "", file.name) for file in folder.glob("movemask-*/*/*.db")}
        assert len(numbers) <= 3, "files of ended workers stay"

        # One that is refused.
        (models / "net.onnx").write_bytes(b"half a file")
        assert metric(port, watch, "movemask_last_reload_successful") == 1
        result = run("reload")
        assert result.exit_code == 1
        assert re.match(r"Error: not reloaded: the new worker cannot serve: .*net.onnx", result.output)
        words = r"not reloaded: the new worker cannot serve: .*net.onnx.*; the workers stay as they were"
        until(lambda: re.search(words, log()), "the log says so")
        until(lambda: workers(process.pid) == after, "the new worker has ended")
        assert statuses(port, kept) == {200}
        assert metric(port, watch, "movemask_last_reload_successful") == 0
        assert not re.search("not ready in time|uvicorn|Traceback", log())

        assert stopped(process) == 0
    assert not list(folder.glob("movemask-*/*")), "its files stay"
    assert run("reload").output.startswith("Error: no service runs here, of this user and with this TMPDIR; ")
