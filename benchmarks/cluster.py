"""The audit on Ray, with nodes that are processes of this machine; docs/scaling.md has what came of it.

    python -m benchmarks.cluster audit GAMES.pgn       positions/s of the audit: this machine, and Ray with one node
    python -m benchmarks.cluster engine                 1 to 64 actors on 1 to 4 nodes, whose network sleeps
    python -m benchmarks.cluster driver                 memory of the driver, for up to 10⁵ files and 10⁸ positions
    python -m benchmarks.cluster month --rate 1000      on paper: a month of lichess at so many positions/s a core

Needs movemask[ray,audit]. Each writes a table of Markdown on standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ray_nodes import ROOT, environment, nodes
from movemask.audit.files import Folder
from movemask.audit.parts import PartDone
from movemask.audit.rows import Choice
from movemask.audit.run import Job, begin
from movemask.audit.sources import Chunk, Form, Key, Sizes, Source
from movemask.audit.workers import Auditor, SplitRead, Work
from movemask.board.position import Elo

#: Positions of a chunk of 40 games, nearly.
POSITIONS = 2_800


class Sleeper(Auditor):
    """An actor whose network sleeps: it takes the time of a chunk, and no processor."""

    seconds = float(os.environ.get("BENCHMARK_SLEEP", "2"))

    def __init__(self, *_: object) -> None:
        pass

    def __call__(self, batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for data in batch["item"]:
            one = pickle.loads(data)
            if isinstance(one, Chunk):
                time.sleep(self.seconds)
                one = PartDone(one.key, POSITIONS, fresh=True, size=one.size)
            yield {"item": [pickle.dumps((os.getpid(), time.time(), one))]}


def audit(games: str, rounds: int) -> None:
    """Positions a second of the same audit, in turn; starting and summarising is told apart."""
    print("| audit | positions | s in all | s of evaluating | positions/s of evaluating | of the local rate |")
    print("|---|---|---|---|---|---|")
    outs, rates = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for name, options in (("local", ()), ("Ray, one node", ("--ray", "local"))):
                outs.append(f"{folder}/{name} {number}")
                positions, total, evaluating, rates[name] = audited(games, outs[-1], options)
                print(
                    f"| {name} | {positions:,} | {total:.0f} | {evaluating:.0f} | {rates[name]:,.0f} "
                    f"| {rates[name] / rates['local']:.2f} |",
                    flush=True,
                )
        subprocess.run([sys.executable, "-m", "movemask", "compare", *outs], check=True, env=environment())


def audited(games: str, out: str, options: Sequence[str]) -> tuple[int, float, float, float]:
    """An audit with two workers: positions, seconds in all, seconds in which the chunks from a tenth to nine tenths
    were finished, and positions a second of these. A chunk is finished when its part is there: it may be told later."""
    started = time.perf_counter()
    counts: list[tuple[float, int]] = []
    command = [sys.executable, "-m", "movemask", "audit", games, "--out", out, "--progress", "none", "--jobs", "2"]
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


def engine(actors: Sequence[tuple[int, int]], seconds: float, chunks_each: int) -> None:
    """How near so many actors come to so many times what one would do."""
    print(f"\nA chunk is {POSITIONS:,} positions and takes an actor {seconds:g} s.\n")
    print("| nodes | actors | chunks | positions/s | efficiency |")
    print("|---|---|---|---|---|")
    for count, size in actors:
        command = [sys.executable, "-m", "benchmarks.cluster", "engine-once", str(size), str(chunks_each)]
        with nodes(count, cpus=-(-size // count)) as cluster:
            found = subprocess.run(
                [*command, cluster.address],
                env={**environment(), "BENCHMARK_SLEEP": str(seconds)},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                cwd=ROOT,
            )
        chunks, worked, rate = json.loads(found.stdout.splitlines()[-1])
        ideal = size * POSITIONS / seconds if seconds else 0
        share = f"{rate / ideal:.2f}" if ideal else "-"
        print(f"| {count} | {worked} | {chunks:,} | {rate:,.0f} | {share} |", flush=True)


def engine_once(size: int, chunks_each: int, address: str) -> None:
    """One line of `engine`, in a process of its own: chunks, actors, and positions a second while all are at work."""
    from movemask.audit.cluster import RaySpread, connected

    class Spread(RaySpread):
        auditor = Sleeper
        least = size

    with tempfile.TemporaryDirectory() as folder:
        text = "".join(f'[Event "{number}"]\n\n{"1. e4 e5 " * 60}*\n\n' for number in range(40 * size * chunks_each))
        (Path(folder) / "x.pgn").write_text(text)
        job = Job([f"{folder}/x.pgn"], Choice(elo=Elo(1500, 1500)), Folder(f"{folder}/out"), sizes=Sizes(split=1 << 20))
        begin(job, {}, restart=False)
        ends: dict[int, list[float]] = {}
        with connected(address, [], size, size):
            spread = Spread([], size, 0)
            work = list(spread._planned(job, _finished()))
            for result in spread._results(job, work):
                pid, at, one = result  # type: ignore[misc]
                if isinstance(one, PartDone):
                    ends.setdefault(pid, []).append(at)
    # From when all actors are at work until the first runs out of chunks.
    first, last = max(map(min, ends.values())), min(map(max, ends.values()))
    done = sum(first < at <= last for of_actor in ends.values() for at in of_actor)
    print(json.dumps([sum(map(len, ends.values())), len(ends), done * POSITIONS / (last - first)]))


def _finished() -> Any:
    from movemask.audit.parts import Finished

    return Finished()


def driver(files: int, steps: Sequence[int]) -> None:
    """Peak memory of the driver's own bookkeeping; cluster and results are made up."""
    print("| files | positions | chunks | peak MB of the driver |")
    print("|---|---|---|---|")
    for positions in steps:
        command = [sys.executable, "-m", "benchmarks.cluster", "driver-once", str(files), str(positions)]
        found = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
        chunks, peak = json.loads(found.stdout.splitlines()[-1])
        print(f"| {files:,} | {positions:,} | {chunks:,} | {peak:.0f} |", flush=True)


def driver_once(files: int, positions: int) -> None:
    """One line of `driver`: every file is planned, and every chunk counted and tallied."""
    import numpy as np

    from movemask.audit.cells import ALL, Cell
    from movemask.audit.cells import Key as CellKey
    from movemask.audit.cluster import RaySpread
    from movemask.audit.tally import ModelTally, Tally
    from movemask.leakage.kinds import KINDS
    from movemask.leakage.traits import DIMENSIONS, groups

    chunks = max(files, positions // POSITIONS)
    each = chunks // files
    rng = np.random.default_rng(0)

    class Spread(RaySpread):
        def _surveyed(self, job: Job, finished: Any) -> Iterator[Source]:
            return (Source(index, name, Form.PGN) for index, name in enumerate(job.files))

        def _results(self, job: Job, work: Sequence[Work]) -> Iterator[PartDone | SplitRead]:
            for one in work:
                for number in range(each):
                    yield PartDone(Key(one.source.index, 0, number), POSITIONS, fresh=True, size=1)
                yield SplitRead(one.source.index, 0, each)

    cells = {}
    for kind in KINDS:
        for dimension in (ALL, *DIMENSIONS):
            for group in [""] if dimension == ALL else groups(dimension):
                leaked = 10 ** rng.uniform(-9, 0, POSITIONS)
                cells[CellKey(kind, dimension, group)] = Cell.of(leaked, leaked > 0.5, leaked)
    part = Tally(
        {"net": ModelTally("d", False, POSITIONS, cells, {k: ((c.sum,), (c.kl,)) for k, c in cells.items()}, {})}
    )
    job = Job([f"s3://bucket/games/{number:06}.pgn" for number in range(files)], Choice(), Folder("/nowhere"))
    finished = Spread([], None, 0).evaluate(job, lambda done: None)
    count = len(list(finished.keys()))
    total = Tally()
    for _ in range(min(200, count // 64)):  # groups of parts; more of them merge into the same cells
        total = Tally.merged([total, part])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([count, peak]))


def month(rate: float, games: float, plies: float, every: int, price: float) -> None:
    """Hours and cost of auditing so many games: positions by rate, and nothing else."""
    positions = games * plies / every
    core_hours = positions / rate / 3600
    print(
        f"{games:,.0f} games of {plies:g} plies, every {every}: "
        f"{positions:,.0f} positions, {core_hours:,.0f} core-hours\n"
    )
    print("| cores | machines of 64 | hours | positions/s | chunks/s at the driver | cost |")
    print("|---|---|---|---|---|---|")
    for cores in (64, 256, 1024):
        speed = cores * rate
        print(
            f"| {cores:,} | {cores // 64} | {core_hours / cores:,.1f} | {speed:,.0f} | {speed / POSITIONS:,.0f} "
            f"| {core_hours * price:,.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("audit")
    one.add_argument("games")
    one.add_argument("--rounds", type=int, default=1)
    one = commands.add_parser("engine")
    one.add_argument("--actors", default="1:1,1:4,2:16,4:64", help="nodes:actors, separated by commas")
    one.add_argument("--seconds", type=float, default=2, help="that an actor sleeps per chunk")
    one.add_argument("--chunks", type=int, default=12, help="per actor")
    one = commands.add_parser("engine-once")
    one.add_argument("size", type=int)
    one.add_argument("chunks", type=int)
    one.add_argument("address")
    one = commands.add_parser("driver")
    one.add_argument("--files", type=int, default=100_000)
    one = commands.add_parser("driver-once")
    one.add_argument("files", type=int)
    one.add_argument("positions", type=int)
    one = commands.add_parser("month")
    one.add_argument("--rate", type=float, required=True, help="positions/s of one core")
    one.add_argument("--games", type=float, default=1e8)
    one.add_argument("--plies", type=float, default=70, help="of a game")
    one.add_argument("--every", type=int, default=1, help="as of the audit")
    one.add_argument("--price", type=float, default=0.03, help="of a core for an hour, in any currency")
    asked = parser.parse_args()
    if asked.command == "audit":
        audit(asked.games, asked.rounds)
    elif asked.command == "engine":
        sizes = [tuple(map(int, one.split(":"))) for one in asked.actors.split(",")]
        engine([(count, size) for count, size in sizes], asked.seconds, asked.chunks)
    elif asked.command == "engine-once":
        engine_once(asked.size, asked.chunks, asked.address)
    elif asked.command == "driver":
        driver(asked.files, (10**6, 10**7, 10**8, 10**9))
    elif asked.command == "driver-once":
        driver_once(asked.files, asked.positions)
    else:
        month(asked.rate, asked.games, asked.plies, asked.every, asked.price)


if __name__ == "__main__":
    main()
