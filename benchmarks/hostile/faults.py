"""Faults of the database's file, models swapped under load, and a soak."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.hostile.clients import ROOT, Service, Times, repeat, request, service
from benchmarks.hostile.load import SINGLE
from benchmarks.hostile.trial import Trial


def figures(tried: Service, path: str) -> Any:
    """What the service says at `path`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{tried.port}{path}", timeout=30) as answer:
        return json.loads(answer.read())


def ask(tried: Service, seconds: float, clients: int = 1) -> Times:
    """Single requests, one after another by each client, for a time."""
    times = Times()

    async def all_of_them() -> None:
        end = time.monotonic() + seconds
        await asyncio.gather(*(repeat(tried.port, SINGLE, end, times, pause=0.01) for _ in range(clients)))

    asyncio.run(all_of_them())
    return times


def _gone(file: Path) -> None:
    for one in file.parent.glob(file.name + "*"):
        one.unlink()


def _alone(file: Path) -> None:
    """As by `rm movemask.db`, while a shell has the file open."""
    shell = sqlite3.connect(file, check_same_thread=False)
    shell.execute("SELECT count(*) FROM sqlite_master").fetchone()
    file.unlink()
    threading.Timer(8, shell.close).start()


def _corrupt(file: Path) -> None:
    with open(file, "r+b") as stream:
        stream.seek(0)
        stream.write(b"\xde\xad" * (file.stat().st_size // 2))


def _inner(file: Path) -> None:
    with open(file, "r+b") as stream:
        stream.seek(4096)
        stream.write(b"\xde\xad" * ((file.stat().st_size - 4096) // 2))


def _locked(file: Path) -> None:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    time.sleep(4)
    connection.execute("ROLLBACK")
    connection.close()


FAULTS: dict[str, Callable[[Path], None]] = {
    "deleted": _gone,
    "deleted alone, while a shell has it open,": _alone,
    "locked for 4 s": _locked,
    "overwritten with noise": _corrupt,
    "damaged inside": _inner,
}


_DAMAGES = _corrupt, _inner
_PROMISED = (
    "answers go on; the audit recovers by itself",
    "answers go on; the damage is told; once the file is moved away, the audit recovers",
)


def database() -> Iterator[Trial]:
    """What happens to SQLite's file while the service answers."""
    for name, fault in FAULTS.items():
        with service() as tried:
            file, told = tried.folder / "movemask.db", True
            ask(tried, 2)
            time.sleep(1)
            fault(file)
            during = ask(tried, 3)
            if fault in _DAMAGES:  # the operator moves it away
                told = figures(tried, "/readyz")["audit"]["failure"] is not None
                file.rename(file.with_name("damaged"))
            time.sleep(7)
            state = figures(tried, "/readyz")["audit"]
            again = ask(tried, 1)
            time.sleep(2)
            try:
                counted = sum(one["positions"] for one in figures(tried, "/v1/leakage")["models"].values())
            except OSError:
                counted = -1
            bad = sum(map(len, during.seconds.values())) - during.count(200)
            works = state["failure"] or "works"
            seen = (
                f"{bad} of {during.count(200) + bad} requests failed; then the audit {works}, with {counted} positions"
            )
            works_again = state["failure"] is None and counted >= again.count(200) > 0
            kept = bad == 0 and told and works_again
            yield Trial(f"SQLite's file is {name}", _PROMISED[fault in _DAMAGES], seen, kept)


def swapped(seconds: float) -> Iterator[Trial]:
    """Networks deleted, cut, replaced and restored under load."""
    (shipped,) = (ROOT / "models").glob("*.toml")
    with service() as probe:
        folder = probe.folder / "models"
        folder.mkdir()
        for ending in (".toml", ".onnx"):
            shutil.copy(shipped.with_suffix(ending), folder / f"{shipped.stem}{ending}")
        raw = request("/v1/policy", {"fen": "startpos", "model": shipped.stem})
        network = (folder / f"{shipped.stem}.onnx").read_bytes()
        with service(models_dir=str(folder)) as tried:
            times = Times()

            async def trial() -> int:
                end = time.monotonic() + seconds
                asking = asyncio.create_task(repeat(tried.port, raw, end, times))
                changes = 0
                while time.monotonic() < end - 1:
                    for content in (network[:1000], network[: len(network) // 2], b"", network):
                        (folder / f"{shipped.stem}.onnx").write_bytes(content)
                        changes += 1
                        await asyncio.sleep(0.5)
                await asking
                return changes

            changes = asyncio.run(trial())
            total = sum(map(len, times.seconds.values()))
            seen = (
                f"{changes} changes; {times.count(200)} of {total} requests answered; p99 {times.ms(200, 0.99):.0f} ms"
            )
            yield Trial(
                "a network's file cut, emptied and restored under load",
                "every request is answered",
                seen,
                times.count(200) == total,
            )


def soak(seconds: float) -> Iterator[Trial]:
    """Steady load; memory, descriptors and p99 of the second and of the last tenth."""
    with service() as tried:
        ask(tried, seconds / 10)
        first, memory, descriptors = ask(tried, seconds / 10), tried.rss_mb, tried.descriptors
        ask(tried, seconds * 7 / 10)
        last = ask(tried, seconds / 10)
        grown, more = tried.rss_mb - memory, tried.descriptors - descriptors
        seen = (
            f"memory {memory:.0f} MB, {grown:+.1f} MB; descriptors {descriptors}, {more:+d}; p99 "
            f"{first.ms(200, 0.99):.1f} and {last.ms(200, 0.99):.1f} ms"
        )
        yield Trial(
            f"steady load for {seconds / 60:.0f} minutes", "flat memory and descriptors", seen, grown < 20 and more <= 2
        )
