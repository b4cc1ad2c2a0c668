"""Both jobs on Ray, with nodes that are processes of this machine; docs/scaling.md has what came of it.

    python -m benchmarks.cluster audit GAMES.pgn       positions/s of the audit: this machine, and Ray with one node
    python -m benchmarks.cluster engine                 1 to 64 actors on 1 to 4 nodes, whose network sleeps
    python -m benchmarks.cluster driver                 memory of the driver, for up to 10⁵ files and 10⁸ positions
    python -m benchmarks.cluster serving                requests/s: the plain service, and Ray Serve with one replica
    python -m benchmarks.cluster killed                 a node is killed under serving load
    python -m benchmarks.cluster month --rate 1000      on paper: a month of lichess at so many positions/s a core

Needs movemask[ray,audit]. Each writes a table of Markdown on standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.load import load, request
from benchmarks.ray_nodes import ROOT, nodes
from benchmarks.servers import movemask
from movemask.board.elo import Elo
from movemask.settings import shipped_models
from movemask.tasks.bulk.files import Folder
from movemask.tasks.bulk.parts import PartDone
from movemask.tasks.bulk.rows import Choice
from movemask.tasks.bulk.run import Job, begin
from movemask.tasks.bulk.sources import Chunk, Form, Key, Sizes, Source
from movemask.tasks.bulk.workers import Auditor, SplitRead, Work

#: Positions of a chunk of 40 games, nearly.
POSITIONS = 2_800

MODEL = "movemask-3"

FENS = (
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
    "r1bqkb1r/pppp1ppp/2n2n2/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R w KQkq - 4 4",
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",
)


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


def audit(games: str) -> None:
    """Positions a second of the same audit, in turn; starting and summarising is told apart."""
    print("| audit | positions | s in all | s of evaluating | positions/s of evaluating | of the local rate |")
    print("|---|---|---|---|---|---|")
    local = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for name, options in (("local", ()), ("Ray, one node", ("--ray", "local"))):
            command = [sys.executable, "-m", "movemask", "audit", games, "--out", f"{folder}/{name}", *options]
            started = time.perf_counter()
            first, last, positions, begun = None, 0.0, 0, 0
            with subprocess.Popen(
                [*command, "--progress", "json", "--jobs", "2"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=_environment(),
            ) as process:
                assert process.stderr is not None
                for line in process.stderr:
                    if line.startswith('{"file"'):
                        positions = json.loads(line)["positions"]
                        last = time.perf_counter()
                        if first is None:
                            first, begun = last, positions
            total = time.perf_counter() - started
            if process.returncode or first is None:
                raise SystemExit(f"{name}: the audit failed")
            rate = (positions - begun) / (last - first)
            local = local or rate
            print(f"| {name} | {positions:,} | {total:.0f} | {last - first:.0f} | {rate:,.0f} | {rate / local:.2f} |")
        subprocess.run(
            [sys.executable, "-m", "movemask", "compare", f"{folder}/local", f"{folder}/Ray, one node"],
            check=True,
            env=_environment(),
        )


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
                env={**_environment(), "BENCHMARK_SLEEP": str(seconds)},
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
    from movemask.tasks.bulk.cluster import RaySpread, connected

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
    from movemask.tasks.bulk.parts import Finished

    return Finished()


def driver(files: int, steps: Sequence[int]) -> None:
    """Peak memory of the driver's own bookkeeping; cluster and results are made up."""
    print("| files | positions | chunks | peak MB of the driver |")
    print("|---|---|---|---|")
    for positions in steps:
        command = [sys.executable, "-m", "benchmarks.cluster", "driver-once", str(files), str(positions)]
        found = subprocess.run(command, env=_environment(), stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
        chunks, peak = json.loads(found.stdout.splitlines()[-1])
        print(f"| {files:,} | {positions:,} | {chunks:,} | {peak:.0f} |", flush=True)


def driver_once(files: int, positions: int) -> None:
    """One line of `driver`: every file is planned, and every chunk counted and tallied."""
    import numpy as np

    from movemask.leakage.kinds import KINDS
    from movemask.leakage.traits import DIMENSIONS, groups
    from movemask.store.cells import ALL, Cell
    from movemask.store.cells import Key as CellKey
    from movemask.tasks.bulk.cluster import RaySpread
    from movemask.tasks.bulk.tally import ModelTally, Tally

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


@contextmanager
def serving_on(count: int, cpus: int, replicas: int, folder: Path) -> Iterator[tuple[int, Any]]:
    """The shipped application on a cluster of so many nodes: its port, once it answers, and the cluster."""
    from tests.ports import free_port

    port = free_port()
    (folder / "serve.yaml").write_text(
        json.dumps(
            {
                "proxy_location": "HeadOnly",
                "http_options": {"host": "127.0.0.1", "port": port},
                "logging_config": {"log_level": "WARNING", "enable_access_log": False},
                "applications": [
                    {
                        "name": "movemask",
                        "route_prefix": "/",
                        "import_path": "movemask.api.ray_serve:application",
                        "args": {"database_url": f"sqlite:///{folder}/audit.db"},
                        "deployments": [
                            {
                                "name": "movemask",
                                "num_replicas": replicas,
                                "max_ongoing_requests": 256,
                                "health_check_period_s": 2,
                                "ray_actor_options": {"num_cpus": 1},
                            }
                        ],
                    }
                ],
            }
        )
    )
    with nodes(count, cpus=cpus) as cluster, (folder / "log.txt").open("wb") as log:
        command = [str(Path(sys.executable).with_name("serve")), "run", "-a", cluster.address, "serve.yaml"]
        with subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=_environment()) as process:
            try:
                for _ in range(600):
                    if process.poll() is not None:
                        raise SystemExit((folder / "log.txt").read_text())
                    if len(_replicas(port)) == replicas:
                        break
                    time.sleep(0.5)
                else:
                    raise SystemExit(f"not all of {replicas} replicas answer")
                yield port, cluster
            finally:
                process.terminate()
                process.wait(60)


def serving(seconds: float) -> None:
    """Requests a second of one position each, in turn."""
    asked = [request("/v1/policy", json.dumps({"fen": fen}).encode()) for fen in FENS]
    print("| service | connections | requests/s | p50 ms | p99 ms | of the plain service |")
    print("|---|---|---|---|---|---|")
    plain = {}
    with tempfile.TemporaryDirectory() as folder:
        with movemask(shipped_models(), MODEL) as server:
            for connections in (1, 32):
                plain[connections] = found = load(server.port, asked, connections, seconds, 3)
                _told("movemask serve", connections, found, 1.0)
        with serving_on(1, 2, 1, Path(folder)) as (port, _):
            for connections in (1, 32):
                found = load(port, asked, connections, seconds, 3)
                _told("Ray Serve, one replica", connections, found, found.rate / plain[connections].rate)


def _told(name: str, connections: int, found: Any, share: float) -> None:
    p50, p99 = (1e3 * found.percentile(q) for q in (50, 99))
    print(f"| {name} | {connections} | {found.rate:,.0f} | {p50:.1f} | {p99:.1f} | {share:.2f} |", flush=True)


def killed(seconds: float) -> None:
    """Kills a node, one of three with a replica each, a third of the time in; eight clients ask all the time."""
    with tempfile.TemporaryDirectory() as folder, serving_on(3, 1, 3, Path(folder)) as (port, cluster):
        right = {fen: _asked(port, fen) for fen in FENS}
        assert all(right.values())
        begun = time.perf_counter()
        outcomes: list[tuple[float, str]] = []
        slowest = [0.0]
        before = _replicas(port)

        def client(number: int) -> None:
            while time.perf_counter() < begun + seconds:
                fen = FENS[number % len(FENS)]
                asked_at = time.perf_counter()
                moves = _asked(port, fen)
                slowest[0] = max(slowest[0], time.perf_counter() - asked_at)
                what = "failed" if moves is None else "right" if moves == right[fen] else "wrong"
                outcomes.append((time.perf_counter() - begun, what))

        clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
        for one in clients:
            one.start()
        time.sleep(seconds / 3)
        at = time.perf_counter() - begun
        cluster.kill()
        for one in clients:
            one.join()
        failed = [when for when, what in outcomes if what == "failed"]
        print("| requests | right | wrong | failed | first failure after the kill, s | last, s | slowest, s |")
        print("|---|---|---|---|---|---|---|")
        counts = [sum(what == one for _, what in outcomes) for one in ("right", "wrong", "failed")]
        first, last = (f"{failed[0] - at:.1f}", f"{failed[-1] - at:.1f}") if failed else ("-", "-")
        print(
            f"| {len(outcomes):,} | {counts[0]:,} | {counts[1]} | {counts[2]} | {first} | {last} | {slowest[0]:.1f} |"
        )
        assert len(before) == 3, before


def _replicas(port: int) -> set[str]:
    """Those that have sent their metrics."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return set(re.findall(r'replica="(\w+)"', answer.read().decode()))
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return set()


def _asked(port: int, fen: str) -> Any:
    """The moves with probabilities rounded to what batches leave of them; None if there was no answer."""
    call = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/policy", json.dumps({"fen": fen}).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(call, timeout=30) as answer:
            moves = json.load(answer)["moves"]
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None
    return sorted((move["uci"], round(move["probability"], 2)) for move in moves)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'service'}{os.pathsep}{ROOT}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("audit").add_argument("games")
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
    commands.add_parser("serving").add_argument("--seconds", type=float, default=10)
    commands.add_parser("killed").add_argument("--seconds", type=float, default=60)
    one = commands.add_parser("month")
    one.add_argument("--rate", type=float, required=True, help="positions/s of one core")
    one.add_argument("--games", type=float, default=1e8)
    one.add_argument("--plies", type=float, default=70, help="of a game")
    one.add_argument("--every", type=int, default=1, help="as of the audit")
    one.add_argument("--price", type=float, default=0.03, help="of a core for an hour, in any currency")
    asked = parser.parse_args()
    if asked.command == "audit":
        audit(asked.games)
    elif asked.command == "engine":
        sizes = [tuple(map(int, one.split(":"))) for one in asked.actors.split(",")]
        engine([(count, size) for count, size in sizes], asked.seconds, asked.chunks)
    elif asked.command == "engine-once":
        engine_once(asked.size, asked.chunks, asked.address)
    elif asked.command == "driver":
        driver(asked.files, (10**6, 10**7, 10**8, 10**9))
    elif asked.command == "driver-once":
        driver_once(asked.files, asked.positions)
    elif asked.command == "month":
        month(asked.rate, asked.games, asked.plies, asked.every, asked.price)
    elif asked.command == "serving":
        serving(asked.seconds)
    else:
        killed(asked.seconds)


if __name__ == "__main__":
    main()
