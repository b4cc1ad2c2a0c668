"""The audit of whole files; benchmarks/results/cluster.md has what came of it.

    python -m benchmarks.audit rate GAMES.pgn      positions/s: processes of this machine, and Ray with one node
    python -m benchmarks.audit figures 1e8 FOLDER   time and memory of the figures of so many made-up rows

Needs movemask[ray,audit]. Each writes a table of Markdown on standard output.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.ray_nodes import environment
from movemask.audit.rows import schema
from movemask.board.boards import PHASES
from movemask.leakage.causes import Cause

#: Kinds of the made-up rows: those whose distributions a report draws.
KINDS = ("raw", "multiplied")
#: Rows that are made at a time.
_AT_ONCE = 100_000


def rate(games: str, rounds: int) -> None:
    """Positions a second of the same audit, in turn; starting and summarising is told apart."""
    print("| audit | positions | s in all | s of evaluating | positions/s of evaluating | of the local rate |")
    print("|---|---|---|---|---|---|")
    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for name, options in (("local", ()), ("Ray, one node", ("--ray", "local"))):
                positions, total, evaluating, rates[name] = audited(games, f"{folder}/{name} {number}", options)
                print(
                    f"| {name} | {positions:,} | {total:.0f} | {evaluating:.0f} | {rates[name]:,.0f} "
                    f"| {rates[name] / rates['local']:.2f} |",
                    flush=True,
                )


def audited(games: str, out: str, options: Sequence[str]) -> tuple[int, float, float, float]:
    """An audit with two workers: positions, seconds in all, seconds in which the chunks from a tenth to nine tenths
    were finished, and positions a second of these. A chunk is finished when its part is there: it may be told later."""
    started = time.perf_counter()
    counts: list[tuple[float, int]] = []
    command = [sys.executable, "-m", "movemask", "audit", games, "--out", out, "--jobs", "2"]
    with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, env=environment()) as process:
        while process.poll() is None:
            counts.append((time.perf_counter(), len(list(Path(out).glob("parts/*.parquet")))))
            time.sleep(0.1)
    total = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"{out}: the audit failed")
    models = json.loads((Path(out) / "summary.json").read_text())["models"]
    positions = next(iter(models.values()))["positions"]
    chunks = max(count for _, count in counts)
    (begin_at, begun), (end_at, ended) = (
        next(one for one in counts if one[1] >= share * chunks) for share in (0.1, 0.9)
    )
    return positions, total, end_at - begin_at, positions * (ended - begun) / chunks / (end_at - begin_at)


def figures(rows: int, folder: Path) -> None:
    """The summary of a table of random rows, which is made in the folder unless it is there."""
    from movemask.audit.files import Folder
    from movemask.audit.summary import summarised

    file = folder / f"{rows}.parquet"
    if not file.exists():
        make(rows, file)
    before, started = time.process_time(), time.perf_counter()
    (model,) = summarised(KINDS, ["made-up"], Folder(str(file)))
    seconds, processor = time.perf_counter() - started, time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print("| rows | MB of the table | s | s of processor | peak MB |")
    print("|---|---|---|---|---|")
    print(f"| {model.positions:,} | {file.stat().st_size >> 20:,} | {seconds:.0f} | {processor:.0f} | {peak:,} |")


def make(rows: int, file: Path) -> None:
    """Rows of every group, whose figures are spread over twelve powers of ten."""
    draws = np.random.default_rng(1)
    with pq.ParquetWriter(file, schema(KINDS), compression="zstd") as writer:
        for start in range(0, rows, _AT_ONCE):
            writer.write_table(_made(draws, np.arange(start, min(rows, start + _AT_ONCE))))


def _made(draws: np.random.Generator, numbers: NDArray[np.int64]) -> pa.Table:
    count = len(numbers)
    columns: dict[str, Any] = {
        "source": ["made up"] * count,
        "item": numbers // 70,
        "ply": numbers % 70,
        "fen": [f"position {number}" for number in numbers.tolist()],
        "turn": np.array(["white", "black"])[1 - numbers % 2],
        "phase": np.array([phase.value for phase in PHASES])[numbers % 3],
        "in_check": draws.random(count) < 0.05,
        "legal_moves": draws.integers(1, 71, count),
        "elo": np.where(draws.random(count) < 0.1, np.nan, draws.integers(600, 2800, count)),
        "model": ["made-up"] * count,
        "digest": ["d"] * count,
        "trained_with_mask": [False] * count,
    }
    for kind in KINDS:
        infinite = draws.random(count) < 0.001
        columns[kind] = 10 ** (-12 * draws.random(count))
        columns[f"{kind}_flipped"] = draws.random(count) < 0.1
        columns[f"{kind}_kl"] = np.where(infinite, np.inf, 10 ** (2 - 10 * draws.random(count)))
    for cause in Cause:
        columns[f"cause_{cause.value}"] = np.where(draws.random(count) < 0.05, draws.random(count) / 10, 0)
    nothing = [None] * count
    arrays = [pa.array(columns.get(at.name, nothing), at.type, from_pandas=True) for at in schema(KINDS)]
    return pa.table(arrays, schema=schema(KINDS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("rate")
    one.add_argument("games")
    one.add_argument("--rounds", type=int, default=1)
    one = commands.add_parser("figures")
    one.add_argument("rows", type=float)
    one.add_argument("folder", type=Path)
    request = parser.parse_args()
    if request.command == "rate":
        rate(request.games, request.rounds)
    else:
        figures(int(request.rows), request.folder)


if __name__ == "__main__":
    main()
