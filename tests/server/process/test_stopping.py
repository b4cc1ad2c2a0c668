"""Stops while a service starts: exit code and log, at every moment."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen

import pytest

from tests.networks import write_net
from tests.processes import served, started
from tests.server.test_logs import TIME

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

_LINE = re.compile(rf"{TIME} (INFO|WARNING) +[\w.]+: ")


def handles(process: Popen[bytes], number: signal.Signals) -> bool:
    """Whether a process handles a signal: until Python runs, none does."""
    caught = re.search(r"^SigCgt:\s+(\w+)", Path(f"/proc/{process.pid}/status").read_text(), re.M)
    assert caught is not None
    return bool(int(caught[1], 16) >> (number - 1) & 1)


def stopped_at(moment: float, models: Path, *options: str, group: bool = False) -> tuple[int, str]:
    """Exit code and output of a service that gets SIGTERM so many seconds after it handles it; `group` if its whole
    process group gets it."""
    command = [sys.executable, "-m", "movemask", "serve", "--port", "0", "--models-dir", str(models), *options]
    with started(command, cwd=models, stdout=PIPE, stderr=STDOUT) as process:
        while not handles(process, signal.SIGTERM):
            time.sleep(0.001)
        time.sleep(moment)
        if group:
            os.killpg(process.pid, signal.SIGTERM)
        else:
            process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    return process.returncode, output.decode()


@pytest.fixture(scope="module")
def seconds_to_serve(tmp_path_factory: pytest.TempPathFactory) -> float:
    """How long a start takes on this machine now."""
    models = write_net(tmp_path_factory.mktemp("m") / "m").parent
    start = time.monotonic()
    with served(models):
        return time.monotonic() - start


def check(moment: float, models: Path, *options: str, group: bool = False) -> None:
    code, output = stopped_at(moment, models, *options, group=group)
    assert code == 0, (moment, output)
    assert all(_LINE.match(line) for line in output.splitlines()), (moment, output)


@pytest.mark.parametrize(
    ("share", "options"),
    [
        (0.0, ("--workers", "1")),
        (0.7, ("--workers", "2", "--mcp")),
    ],
)
def test_stopped_start_exits_0_without_alarm(
    models: Path, seconds_to_serve: float, share: float, options: tuple[str, ...]
) -> None:
    check(share * seconds_to_serve, models, *options)


@pytest.mark.deep
@pytest.mark.parametrize("share", [0.75])
def test_signal_to_all_processes_stops_a_start(models: Path, seconds_to_serve: float, share: float) -> None:
    """As systemd sends it, and a terminal for Ctrl-C."""
    check(share * seconds_to_serve, models, "--workers", "2", group=True)


@pytest.mark.deep
@pytest.mark.parametrize("group", [False, True], ids=["supervisor", "group"])
@pytest.mark.parametrize("options", [("1",), ("2",), ("1", "--mcp"), ("2", "--mcp")])
def test_start_stops_at_thirty_moments(
    models: Path, seconds_to_serve: float, options: tuple[str, ...], group: bool
) -> None:
    for number in range(30):
        check(number / 25 * seconds_to_serve, models, "--workers", *options, group=group)
