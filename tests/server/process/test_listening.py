"""Port and Sockets: reserved ports, shared and Unix sockets, and a lack of descriptors."""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
from collections import Counter
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from signal import SIGTERM
from subprocess import PIPE, STDOUT

import pytest

from movemask.errors import SettingsError
from movemask.server.process import listening
from movemask.server.process.listening import AT_ONCE, Port, Sockets
from tests.parts import part_of
from tests.processes import call, served, started, stopped, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted as Linux does")


@pytest.mark.parametrize("first", [1, 3])
@pytest.mark.parametrize("second", [1, 3])
def test_port_in_use_raises(first: int, second: int) -> None:
    port = Port("127.0.0.1", 0, first)
    number = port.addresses[0][1]
    (worker,), *others = [port.sockets.bind() for _ in range(first)]
    worker.listen()
    for _ in range(2):  # also while a worker alone still has it
        with pytest.raises(SettingsError, match=f"MOVEMASK_PORT: cannot listen on 127.0.0.1:{number}: address already"):
            Port("127.0.0.1", number, second)
        port.close()
    for (listener,) in ([worker], *others):
        listener.close()
    Port("127.0.0.1", number, second).close()


@pytest.mark.parametrize("workers", [1, 2])
def test_port_refuses_until_a_worker_listens(workers: int) -> None:
    """A proxy then asks another machine; it would wait for one that listens and does not answer."""
    with closing(Port("127.0.0.1", 0, workers)) as port:
        sockets, address = port.sockets, port.addresses[0]
        (listener,) = sockets.bind()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 5)
        sockets.listen()
        socket.create_connection(address, 5).close()
        listener.close()


def test_reserved_port_taken_by_another_program_raises() -> None:
    """The system lets any program have it that asks with SO_REUSEADDR, until a worker listens."""
    fault = "MOVEMASK_PORT: cannot listen: address already in use: another program took the port that was reserved; "
    with closing(Port("127.0.0.1", 0)) as one, closing(Port("127.0.0.1", 0, 2)) as two, ExitStack() as stack:
        for port in (one, two):
            other = stack.enter_context(socket.socket())
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(port.addresses[0])
            other.listen()
        sockets = one.sockets
        (listener,) = sockets.bind()
        with listener, pytest.raises(SettingsError, match=fault):
            sockets.listen()
        with pytest.raises(SettingsError, match=fault):
            two.sockets.bind()


@pytest.mark.anyio
async def test_burst_is_spread_over_workers_with_one_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS: a worker that accepted the whole queue would leave nothing to the others."""
    monkeypatch.setattr(listening, "SPREADS", False)
    accepted: Counter[int] = Counter()

    def accept(worker: int) -> asyncio.Protocol:
        accepted[worker] += 1
        return asyncio.Protocol()

    loop, port = asyncio.get_running_loop(), Port("127.0.0.1", 0, 2)
    port._reserved[0].listen()
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(socket.create_connection(port.addresses[0]))
        for worker in range(2):
            (shared,) = Sockets(shared=[one.dup() for one in port._reserved]).bind()
            server = await loop.create_server(
                partial(accept, worker), sock=shared, backlog=AT_ONCE, start_serving=False
            )
            stack.callback(server.close)
            loop.call_soon(asyncio.ensure_future, server.start_serving())
        while accepted.total() < 10:
            await asyncio.sleep(0)
        assert min(accepted.values()) >= 4
    port.close()


def test_listen_ignores_the_backlog_of_asyncio() -> None:
    """A queue of one connection would refuse the others of a burst."""
    with closing(Port("127.0.0.1", 0)) as port:
        (listener,) = port.sockets.bind()
    with listener as queue, ExitStack() as stack:
        queue.listen(AT_ONCE)
        for _ in range(100):
            stack.enter_context(socket.create_connection(queue.getsockname(), 5))


@pytest.mark.deep
def test_service_without_descriptors_logs_once_a_second(models: Path) -> None:
    def limit_descriptors() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (90, 90))

    with served(models, "--workers", "1", preexec_fn=limit_descriptors) as (process, port), ExitStack() as stack:
        log = models / "log.txt"
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 30)) for _ in range(150)]
        until(lambda: log.read_text().count("no connections are accepted") >= 2, "two tries have failed")
        lines = [line for line in log.read_text().splitlines() if "no connections are accepted" in line]
        assert all("too many open files" in line for line in lines)
        seconds = {line.partition(".")[0] for line in lines}
        assert len(lines) <= len(seconds) + 1
        for client in clients:
            client.close()
        until(lambda: call(port, "/livez")["status"] == "alive", "the service answers again")
        assert stopped(process) == 0
        assert "Traceback" not in log.read_text()


@pytest.mark.deep
def test_ipv6_host_tells_ipv4_clients_apart(models: Path) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with served(models, "--host", "::", "--workers", "2", "--max-connections-per-address", "1") as (process, port):
        with socket.create_connection(("::1", port), 30), socket.create_connection(("127.0.0.1", port), 30) as client:
            client.sendall(
                b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )  # not in the other's network
            assert client.recv(12) == b"HTTP/1.1 200"
        assert stopped(process) == 0


@pytest.mark.parametrize("workers", part_of(["1", "2"], 2))
def test_service_on_a_unix_socket(models: Path, tmp_path: Path, workers: str) -> None:
    file = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(file))
    command = [sys.executable, "-m", "movemask", "serve", "--host", f"unix:{file}", "--models-dir", str(models)]
    with started([*command, "--workers", workers], cwd=models, stderr=STDOUT, stdout=PIPE, bufsize=0) as process:

        def answer() -> bytes:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(file))
                client.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                return client.recv(65_536)

        assert process.stdout is not None
        lines_read = [b""]
        while b"listening on" not in lines_read[-1]:
            lines_read.append(process.stdout.readline())
            assert lines_read[-1], b"".join(lines_read).decode()
        assert answer().startswith(b"HTTP/1.1 200 ")
        with pytest.raises(SettingsError, match=f"cannot listen on unix:{file}: address already in use"):
            Port(f"unix:{file}", 0)
        process.send_signal(SIGTERM)
        output = (b"".join(lines_read) + process.communicate(timeout=60)[0]).decode()
    assert process.returncode == 0, output
    assert output.index(f"starting on unix:{file}, ") < output.index(f"listening on unix:{file}\n")
    assert "NO API KEYS" not in output
    assert not file.exists()


def test_unix_socket_in_use_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "socket"
    with closing(Port(f"unix:{file}", 0)):
        with pytest.raises(SettingsError, match=f"cannot listen on unix:{file}: address already in use"):
            Port(f"unix:{file}", 0)
        assert file.is_socket()


def test_file_that_is_no_socket_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for host, words in ((f"unix:{file}", "address already in use"), (f"unix:{tmp_path / ('x' * 200)}", "too long")):
        with pytest.raises(SettingsError, match=f"MOVEMASK_HOST: cannot listen on {host}: .*{words}"):
            Port(host, 0)
    assert file.read_text() == "mine"
