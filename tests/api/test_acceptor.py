"""What several processes would lose: connections spread over all of them, and limits that hold for all together."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import sys
import time
import urllib.error
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from movemask.api.acceptor import HANDED, TOLD, Acceptor
from movemask.tally import IN_FLIGHT, SPENT, Tally, new_table
from tests.processes import call, served, serving, stopped, until, workers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def sockets(pid: int) -> int:
    """How many sockets a process has open."""
    found = 0
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found += os.readlink(file).startswith("socket:")
    return found


def test_a_burst_of_connections_is_spread_over_the_workers(models: Path) -> None:
    with served(models, "--workers", "2") as (process, port):
        pids = serving(models, 2, process.pid)
        for _ in range(10):
            before = {pid: sockets(pid) for pid in pids}
            with ExitStack() as stack:
                for _ in range(64):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
                until(lambda: sum(map(sockets, pids)) == sum(before.values()) + 64, "all are accepted")  # noqa: B023
                taken = [sockets(pid) - before[pid] for pid in pids]
                assert max(taken) <= 0.6 * 64
            until(lambda: {pid: sockets(pid) for pid in pids} == before, "all are closed again")  # noqa: B023
        assert stopped(process) == 0


def test_more_connections_at_once_than_a_worker_has_read_are_kept_and_none_is_cut_off() -> None:
    ours, channel = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0), backlog=2000) as listener, ours, ExitStack() as stack:
        acceptor = Acceptor([listener], most=2000, most_of_address=None)
        acceptor.add(channel, time.monotonic)
        asked = [stack.enter_context(socket.create_connection(listener.getsockname(), 30)) for _ in range(800)]
        taken: list[int] = []
        ours.settimeout(30)
        while len(taken) < len(asked):  # the worker reads only now: its channel is full
            head, descriptors, _, _ = socket.recv_fds(ours, HANDED.size, 1)
            assert descriptors
            stack.enter_context(socket.socket(fileno=descriptors[0])).sendall(b"served")
            taken.append(HANDED.unpack(head)[0])
            ours.sendall(TOLD.pack(taken[-1]))
        assert len(set(taken)) == len(asked)
        assert [one.recv(16) for one in asked] == [b"served"] * len(asked)
        ours.sendall(TOLD.pack(0))  # it drains
        acceptor.close()
        acceptor.remove(channel)


def test_limits_of_connections_hold_for_all_workers_together(models: Path) -> None:
    with served(models, "--workers", "2", "--max-connections-per-address", "6") as (process, port):
        serving(models, 2, process.pid)
        until(lambda: open_connections(port) == 1, "the connections of the start have ended")
        kept = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(6)]
        with socket.create_connection(("127.0.0.1", port), 30) as one_more:
            assert one_more.recv(65_536).startswith(b"HTTP/1.1 503 ")
        kept.pop().close()

        def served_again() -> bool:
            try:
                return bool(call(port, "/livez"))
            except urllib.error.HTTPError:
                return False

        until(served_again, "a connection that has ended is given back")
        for one in kept:
            one.close()
        assert stopped(process) == 0


def open_connections(port: int) -> int:
    lines = call(port, "/metrics").splitlines()
    return int(float(next(line for line in lines if line.startswith("movemask_connections ")).split()[1]))


def test_a_clients_rate_and_what_it_asked_for_hold_for_all_workers(models: Path) -> None:
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
        with pytest.raises(urllib.error.HTTPError, match="429"):
            call(port, "/v1/policy", {"moves": []})


def test_who_reads_the_figures_finds_what_he_just_asked_whichever_worker_answers(models: Path) -> None:
    with served(models, "--workers", "2") as (process, port):
        serving(models, 2, process.pid)
        for asked in range(1, 21):  # each on a connection of its own
            call(port, "/v1/policy", {"moves": []})
            figures = call(port, "/v1/leakage")
            known = sum(one["positions"] for one in figures["models"].values())
            assert known + figures["freshness"]["waiting"] >= asked
        until(lambda: call(port, "/v1/leakage")["freshness"]["waiting"] == 0, "all is written")
        assert call(port, "/v1/leakage")["models"]["net"]["positions"] == asked
        assert stopped(process) == 0


def test_two_processes_add_up_and_a_dead_one_is_taken_out() -> None:
    draw = random.Random(1)
    with new_table(3) as table:
        views = [Tally(table, 3, column) for column in range(3)]
        clients = [views[0].client(f"client {number}") for number in range(50)]
        expected: Counter[int] = Counter()
        lost: Counter[int] = Counter()
        for _ in range(1000):
            column, row, amount = draw.randrange(3), draw.choice(clients) + IN_FLIGHT, draw.randrange(-5, 9)
            views[column].add(row, amount)
            views[column].add(row - IN_FLIGHT + SPENT, 1)
            expected[row] += amount
            lost[row] += amount if column == 2 else 0
        assert all(view.total(row) == expected[row] for view in views for row in expected)
        spent = [views[0].total(client + SPENT) for client in clients]
        views[0].clear(2)
        assert all(views[1].total(row) == expected[row] - lost[row] for row in expected)
        assert [views[1].total(client + SPENT) for client in clients] == spent
