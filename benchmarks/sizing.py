"""What a service needs, as Markdown tables: memory, CPU time and bytes of the ledger: `python -m benchmarks.sizing`.

One FEN a request, then 256 positions a request, each position of a random game and at the default settings. CPU time
is told rather than a rate, because it changes less on a machine that others share. Linux only.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.load import Load, load
from benchmarks.servers import Server, family
from benchmarks.serving import A_CALL, CALLERS, MANY, Measured
from movemask.network.files import shipped_models

#: Seconds that a service rests before its memory is read.
_REST = 1.0


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models-dir", type=Path, default=shipped_models())
    parser.add_argument("--model", help="by default the shipped one")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    of = Measured(arguments.models_dir.resolve(), arguments.model, arguments.seconds, "")
    print(f"### {of.model.name}\n")
    print("| workers | MB at the start: supervisor, a worker | MB after the load: a worker, all |")
    print("|--:|--:|--:|")
    for workers in arguments.workers:
        print(_memory_row(of, workers))
    print("\n| requests | ms of CPU time a position | positions a second and core |\n|---|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger.db"
        with of.serve(workers=1, database_url=f"sqlite:///{ledger}") as server:
            of.one_by_one(server, MANY)  # to warm up
            before, size = _recorded(server), ledger.stat().st_size
            for name, positions in (("one FEN, 64 connections", 1), (f"{A_CALL} positions, two connections", A_CALL)):
                seconds = _cpu_seconds(of, server, positions)
                print(f"| {name} | {1e3 * seconds:.2f} | {1 / seconds:,.0f} |")
            positions, size = _recorded(server) - before, ledger.stat().st_size - size
    print(f"\nThe ledger grew by {size / positions:,.0f} bytes a position ({positions:,} positions, SQLite).")


def _memory_row(of: Measured, workers: int) -> str:
    """The row of the table for so many workers. Memory that processes share counts once, in equal parts."""
    with of.serve(workers=workers) as server:
        start = _megabytes(server)
        of.one_by_one(server, MANY)
        load(server.port, of.calls(A_CALL), CALLERS, of.seconds)
        time.sleep(_REST)
        end = _megabytes(server)
    supervisor, worker = start[server.process.pid], max(_of_workers(start, server))
    return (
        f"| {workers} | {supervisor:.0f}, {worker:.0f} | {max(_of_workers(end, server)):.0f}, {sum(end.values()):.0f} |"
    )


def _megabytes(server: Server) -> dict[int, float]:
    """Memory of each process of a service, in MB: its own, and its part of what processes share (PSS)."""
    megabytes = {}
    for pid in family(server.process.pid):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        (line,) = (line for line in lines if line.startswith("Pss:"))
        megabytes[pid] = 1024 * int(line.split()[1]) / 1e6
    return megabytes


def _of_workers(megabytes: dict[int, float], server: Server) -> list[float]:
    return [size for pid, size in megabytes.items() if pid != server.process.pid]


def _cpu_seconds(of: Measured, server: Server, positions: int) -> float:
    """CPU time of a position, in seconds, in requests of so many positions; the ledger's part is in it."""
    _recorded(server)
    before = server.cpu_seconds()
    answered: Load = (
        of.one_by_one(server, MANY) if positions == 1 else load(server.port, of.calls(positions), CALLERS, of.seconds)
    )
    _recorded(server)
    return (server.cpu_seconds() - before) / (positions * answered.answered)


def _recorded(server: Server) -> int:
    """Number of positions in the ledger, once none waits for it."""
    while _json(server, "/readyz")["ledger"]["waiting"]:
        time.sleep(0.1)
    return sum(model["positions"] for model in _json(server, "/v1/leakage")["models"].values())


def _json(server: Server, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=60) as response:
        return json.load(response)


if __name__ == "__main__":
    main()
