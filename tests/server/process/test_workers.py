"""Several workers of a service: spread connections, common limits, metrics and figures."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
import urllib.error
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

import pytest

from movemask import __version__
from tests.networks import write_net
from tests.processes import call, running, served, serving, stopped, until, workers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def sockets(pid: int) -> int:
    """How many sockets a process has open."""
    count = 0
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += os.readlink(file).startswith("socket:")
    return count


class Two(NamedTuple):
    """A service with two workers."""

    models: Path
    process: Popen[bytes]
    port: int

    def both(self) -> set[int]:
        """Its workers, once two serve."""

        def serving_pids() -> set[int]:
            log = (self.models / "log.txt").read_text()
            pids = {pid for pid in workers(self.process.pid) if f"worker {pid} serves\n" in log}
            return pids if len(pids) == 2 else set()

        return until(serving_pids, "two workers serve")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    models = write_net(tmp_path_factory.mktemp("two") / "m").parent
    with served(models, "--workers", "2") as (process, port):
        yield Two(models, process, port)
        assert stopped(process) == 0


@pytest.mark.parametrize("count", [16, 64])
def test_burst_of_connections_is_spread(two: Two, count: int) -> None:
    pids = two.both()
    before = {pid: sockets(pid) for pid in pids}
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(("127.0.0.1", two.port), 30))
        until(lambda: sum(map(sockets, pids)) == sum(before.values()) + count, "all are accepted")
        assert min(sockets(pid) - before[pid] for pid in pids) > 0  # by chance once in 32,768
    until(lambda: {pid: sockets(pid) for pid in pids} == before, "all are closed again")


LIVE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def answers(port: int, count: int, before: Callable[[], None] = lambda: None) -> list[bytes]:
    """What `count` connections get, opened at once, after `before` is called."""
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 30)) for _ in range(count)]
        for client in clients:
            client.sendall(LIVE)
        before()
        return [client.recv(12) for client in clients]


@pytest.mark.deep
def test_replacement_answers_connections_not_yet_accepted(models: Path) -> None:
    with served(models, "--workers", "1") as (process, port):
        (worker,) = serving(models, 1, process.pid)
        os.kill(worker, signal.SIGSTOP)
        assert answers(port, 16, lambda: os.kill(worker, signal.SIGKILL)) == [b"HTTP/1.1 200"] * 16
        assert stopped(process) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.deep)])
def test_other_worker_takes_all_new_connections(two: Two, number: signal.Signals) -> None:
    ended = min(two.both())
    (two.models / "net.toml").rename(two.models / "net.away")  # no other worker can start
    try:
        os.kill(ended, number)
        until(lambda: not running(ended), "it has ended")
        until(lambda: answers(two.port, 32) == [b"HTTP/1.1 200"] * 32, "all are answered")
    finally:
        (two.models / "net.away").rename(two.models / "net.toml")


def metric(port: int, name: str) -> float:
    lines = call(port, "/metrics").splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


def test_process_metrics_add_up_workers(two: Two) -> None:
    def resident(pid: int) -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    expected = sum(map(resident, two.both()))
    until(lambda: metric(two.port, "process_resident_memory_bytes") > 0.9 * expected, "both workers have told")
    assert metric(two.port, "process_open_fds") > 20
    assert f'movemask_build_info{{version="{__version__}"}} 1.0' in call(two.port, "/metrics")


@pytest.mark.deep
def test_client_rate_holds_for_all_workers(models: Path) -> None:
    body = json.dumps({"moves": []})
    limits = ("--client-rate", "0.001", "--client-burst", "20")
    with served(models, "--workers", "2", *limits) as (process, port):
        pids = serving(models, 2, process.pid)
        statuses: Counter[int] = Counter()
        clients = [http.client.HTTPConnection("127.0.0.1", port, timeout=30) for _ in range(4)]
        for number in range(40):
            client = clients[number % 4]
            client.request("POST", "/v1/policy", body, {"Content-Type": "application/json"})
            answer = client.getresponse()
            answer.read()
            statuses[answer.status] += 1
        for client in clients:
            client.close()
        assert statuses == {200: 20, 429: 20}
        os.kill(min(pids), signal.SIGKILL)  # what its clients have spent stays spent
        until(lambda: min(pids) not in workers(process.pid), "it is replaced")

        def status() -> int:
            try:
                call(port, "/v1/policy", {"moves": []})
            except urllib.error.HTTPError as error:
                with error:
                    return error.code
            return 200

        assert until(status, "a worker answers") == 429


def test_figures_hold_answers_of_all_workers(two: Two) -> None:
    two.both()

    def counted() -> int:
        return int(call(two.port, "/v1/leakage")["models"].get("net", {}).get("positions", 0))

    before = counted()
    for _ in range(20):  # each on a connection of its own
        call(two.port, "/v1/policy", {"moves": []})
    until(lambda: counted() == before + 20, "all answers are counted")
