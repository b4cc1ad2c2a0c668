"""A full temporary folder: workers, answers, the ledger, metrics and /readyz."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.disks import file_system
from tests.networks import write_net
from tests.processes import call, environment, served, serving, until, workers
from tests.test_faults import counted

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tmpfs is Linux's")

NAMES = ["first", "second", "third", "fourth"]


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """The file system of a folder without a free block."""
    junk = folder / "junk"
    with open(junk, "wb", buffering=0) as file, suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    yield
    junk.unlink()


def ask_everything(port: int, rounds: int) -> int:
    """Asks every model, for correct and incorrect requests of many routes; returns the number of positions answered."""
    answered = 0
    for count in range(rounds):
        for name in NAMES:
            answered += len(call(port, "/v1/policy", {"moves": ["e2e4"], "model": name})["moves"]) > 0
        for path, body in (
            ("/v1/policy", {"fen": f"bad{count}"}),
            ("/v1/move", {"temperature": -1}),
            ("/v1/games", {"pgn": 1}),
            (f"/v1/models/none{count}", None),
        ):
            with suppress(OSError):
                call(port, path, body)
    return answered


def folder_of_metrics(temporary: Path) -> Path:
    (folder,) = (temporary / f"movemask-{os.geteuid()}").glob("tmp*")
    return folder


def ledger_of(port: int) -> Any:
    return call(port, "/readyz")["ledger"]


def test_full_disk_ends_no_worker_and_loses_no_position(tmp_path: Path) -> None:
    """A sparse metrics file on a full disk once killed each worker by SIGBUS, with the positions that waited."""
    models = tmp_path / "models"
    for name in NAMES:
        write_net(models, name)
    with file_system(tmp_path / "small", "size=6m") as small:
        arguments = ["--workers", "2", "--ledger-kinds", "all", "--ledger-share", "1"]
        arguments += ["--database-url", f"sqlite:///{small}/ledger.db"]
        with served(models, *arguments, env=environment(TMPDIR=str(small))) as (process, port):
            before = serving(models, 2, process.pid)
            answered = ask_everything(port, 1)
            until(lambda: counted(port), "the first answers are written", equals=answered)
            with filled(small):
                answered += ask_everything(port, 20)
                until(lambda: ledger_of(port)["failure"], "the ledger cannot be written")
                assert workers(process.pid) == before
            until(lambda: counted(port), "what waited is written", equals=answered)

            until(
                lambda: sum(ledger_of(port)["waiting"] for _ in range(20)), "nothing waits in either worker", equals=0
            )
            with filled(small):
                killed = min(before)
                os.kill(killed, signal.SIGKILL)
                after = serving(models, 3, process.pid)
                answered += ask_everything(port, 20)
                assert workers(process.pid) == after
            until(lambda: counted(port), "what waited is written", equals=answered)

            metrics = call(port, "/metrics")
            totals = re.findall(r"^movemask_positions_total\{.*\} (\S+)$", metrics, re.M)
            assert sum(map(float, totals)) == answered, "the counts of the killed worker go on"
            assert "movemask_ledger_lost_total 0.0" in metrics
            assert "movemask_metrics_refused_total 0.0" in metrics
    log = (models / "log.txt").read_text()
    assert re.findall(r"worker \d+ ended \((.*?)\)", log) == ["SIGKILL"], log
    assert "were not written" not in log
