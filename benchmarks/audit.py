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

from benchmarks.ray_nodes import environment
from movemask.leakage.causes import Cause

#: Kinds of the made-up rows: those whose distributions a report draws.
KINDS = ("raw", "multiplied")


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
    import duckdb

    columns = [
        *(f"10 ** (-12 * random()) AS {kind}, random() < 0.1 AS {kind}_flipped" for kind in KINDS),
        *(f"if(random() < 0.001, 'inf'::DOUBLE, 10 ** (2 - 10 * random())) AS {kind}_kl" for kind in KINDS),
        *(f"if(random() < 0.05, random() / 10, 0) AS cause_{cause.value}" for cause in Cause),
    ]
    duckdb.sql(
        "COPY (SELECT 'made up' AS source, i // 70 AS item, (i % 70)::INT AS ply, 'position ' || i AS fen, "
        "['white', 'black'][1 + i % 2] AS turn, ['opening', 'middlegame', 'endgame'][1 + i % 3] AS phase, "
        "random() < 0.05 AS in_check, (1 + floor(70 * random()))::INT AS legal_moves, "
        "if(random() < 0.1, NULL, floor(600 + 2200 * random())) AS elo, 'made-up' AS model, 'd' AS digest, "
        f"false AS trained_with_mask, {', '.join(columns)} FROM range({rows}) AS made(i)) "
        f"TO '{file}' (FORMAT parquet, COMPRESSION zstd)"
    )


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
