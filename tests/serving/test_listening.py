"""What an operator would lose: a port that is theirs alone, and a log that can be read when descriptors run out."""

from __future__ import annotations

import resource
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from movemask.errors import SettingsError
from movemask.serving import listening
from movemask.serving.listening import Listener, Port
from tests.processes import call, served, stopped, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted as Linux does")


@pytest.mark.parametrize("first", [1, 3])
@pytest.mark.parametrize("second", [1, 3])
def test_two_services_cannot_have_one_port(first: int, second: int) -> None:
    port = Port("127.0.0.1", 0, first)
    number = port.addresses[0][1]
    with pytest.raises(SettingsError, match=f"MOVEMASK_PORT: cannot listen on 127.0.0.1:{number}: address already"):
        Port("127.0.0.1", number, second)
    workers = [port.sockets(alone=place == 0)[0] for place in range(first)]
    port.close()
    with pytest.raises(SettingsError, match="address already in use"):  # while a worker still has it
        Port("127.0.0.1", number, second)
    for listener in workers:
        listener.close()
    Port("127.0.0.1", number, second).close()


def test_workers_that_share_a_socket_each_get_some_of_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS: a worker that accepted all that waits would leave nothing to the others."""
    monkeypatch.setattr(listening, "SPREADS", False)
    port = Port("127.0.0.1", 0, 2)
    with ExitStack() as stack:
        listeners = [stack.enter_context(Listener(port.sockets(alone=True)[0].detach(), 2)) for _ in range(2)]
        for listener in listeners:
            listener.setblocking(False)
        for _ in range(10):
            stack.enter_context(socket.create_connection(port.addresses[0]))
        for listener in [*listeners] * 5:
            stack.enter_context(listener.accept()[0])
            with pytest.raises(BlockingIOError):
                listener.accept()
    port.close()


def test_without_descriptors_the_log_gets_a_line_a_second_and_later_clients_are_served(models: Path) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (90, 90))

    with served(models, "--workers", "1", preexec_fn=few) as (process, port), ExitStack() as stack:
        log = models / "log.txt"
        opened = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 30)) for _ in range(150)]
        until(lambda: log.read_text().count("no connections are accepted") >= 2, "two tries have failed")
        lines = [line for line in log.read_text().splitlines() if "no connections are accepted" in line]
        assert all("too many open files" in line for line in lines)
        seconds = {line.partition(".")[0] for line in lines}
        assert len(lines) <= len(seconds) + 1
        for one in opened:
            one.close()
        until(lambda: call(port, "/livez")["status"] == "alive", "the service answers again")
        assert stopped(process) == 0
        assert "Traceback" not in log.read_text()
