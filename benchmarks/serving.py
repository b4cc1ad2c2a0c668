"""The service under load, beside bare onnxruntime and the peers that are installed: `python -m benchmarks.serving`.

Everything is measured in one run on one machine, client included; headline figures in rounds, one after the other, so
that a machine that changes its pace changes it for all. Writes benchmarks/results/serving.md and its plots. Nothing
else should run meanwhile. `--peers` names the Python that LitServe and BentoML are installed in, if it is another one.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
from tqdm import tqdm

from benchmarks.bare import Bare
from benchmarks.load import Load, load, request
from benchmarks.positions import random_games
from benchmarks.servers import PEERS, CannotStart, Server, movemask, peer
from benchmarks.serving_report import write
from movemask.cores import available_cores
from movemask.network.files import shipped_models
from movemask.network.model import Model
from movemask.network.registry import load_registry, network_file

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONNECTIONS = (1, 2, 4, 8, 16, 32, 64, 128)
PER_CALL = (1, 4, 16, 64, 256, 1024)
MANY, SOME, A_CALL, CALLERS = 64, 16, 256, 2
MATE = "r1bqkb1r/pppp1Qpp/2n2n2/4p3/2B1P3/8/PPPP1PPP/RNB1K1NR b KQkq - 0 4"

Figures = dict[str, Any]


class Measured:
    """One model behind one service and one onnxruntime; every measure is `seconds` long."""

    def __init__(self, models: Path, name: str, seconds: float, python: str) -> None:
        self.models, self.seconds, self.python = models, seconds, python
        self.model: Model = load_registry(models, name, 1).get(name)
        file = network_file(models / f"{name}.toml", self.model.contract)
        assert file is not None
        self.file = file
        self.bare = Bare(file, available_cores())
        self.fens = random_games(4_000)

    def serve(self, **settings: object) -> Any:
        return movemask(self.models, self.model.name, **settings)

    def one_by_one(self, server: Server, connections: int, fens: Sequence[str] | None = None) -> Load:
        asked = [request("/v1/policy", orjson.dumps({"fen": fen})) for fen in fens or self.fens]
        return load(server.port, asked, connections, self.seconds)

    def calls(self, size: int) -> list[bytes]:
        """Requests of so many positions each."""
        rng = random.Random(size)
        parts = [rng.choices(self.fens, k=size) for _ in range(16)]
        return [
            request("/v1/policy/batch", orjson.dumps({"positions": [{"fen": fen} for fen in part]})) for part in parts
        ]

    def in_batches(self, server: Server, size: int) -> Load:
        """Calls of so many positions."""
        return load(server.port, self.calls(size), CALLERS, max(self.seconds, 2 * size * CALLERS / 1000))

    def headline(self, size: int) -> Figures:
        """The headline figures, once: the service several ways, between two measures of bare onnxruntime."""
        before = self.bare.rate_beside(size, self.seconds)
        lone = self.bare.lone_seconds(self.seconds / 2)
        paused = self.bare.lone_seconds(self.seconds / 2, pause=lone)
        cpu = []
        with self.serve() as server:
            for step in (
                lambda: self.in_batches(server, A_CALL),
                lambda: self.one_by_one(server, MANY),
                lambda: self.one_by_one(server, MANY, [MATE]),
                lambda: self.one_by_one(server, 1),
                lambda: self.one_by_one(server, SOME),
            ):
                before_it = server.cpu_seconds()
                found = step()
                cpu.append((found, 1e6 * (server.cpu_seconds() - before_it) / found.answered))
        (batches, batches_cpu), (many, many_cpu), (finished, finished_cpu), (alone, alone_cpu), (some, _) = cpu
        after = self.bare.rate_beside(size, self.seconds)
        return {
            "bare": (before + after) / 2,
            "bare_lone_ms": 1e3 * lone,
            "bare_paused_ms": 1e3 * paused,
            "batches": A_CALL * batches.rate,
            "batches_cpu_us": batches_cpu / A_CALL,
            "many_cpu_us": many_cpu,
            "finished_cpu_us": finished_cpu,
            "lone_cpu_us": alone_cpu,
            "many": many.rate,
            "many_p50_ms": 1e3 * many.percentile(50),
            "many_p99_ms": 1e3 * many.percentile(99),
            "lone_p50_ms": 1e3 * alone.percentile(50),
            "lone_p99_ms": 1e3 * alone.percentile(99),
            "lone": alone.rate,
            "some": some.rate,
            "finished": finished.rate,
        }

    def peers(self) -> dict[str, Figures | str]:
        """Requests a second and percentiles of each, or why there are none."""
        terms = self.model.contract.terms
        if (terms.planes, terms.vocabulary) != ("lc0-112", "lc0-1858"):
            return dict.fromkeys(PEERS, "the examples are of lc0's networks")
        found: dict[str, Any] = {}
        for name in PEERS:
            python = self.python if name != "a plain FastAPI handler" else sys.executable
            try:
                with peer(name, python, self.model, self.file) as server:
                    body = (lambda fen: {"fens": [fen]}) if name == "BentoML" else (lambda fen: {"fen": fen})
                    asked = [request("/policy", orjson.dumps(body(fen))) for fen in self.fens]
                    found[name] = _told(load(server.port, asked, MANY, self.seconds))
                    found[name]["lone"] = load(server.port, asked, 1, self.seconds).rate
            except CannotStart as error:
                found[name] = str(error)
        return found


def _told(measured: Load) -> Figures:
    return {"rate": measured.rate, **{f"p{q}_ms": 1e3 * measured.percentile(q) for q in (50, 95, 99)}}


def _flat(of: Measured, most: int) -> list[Figures]:
    """Rate and memory while more and more positions go through one service, up to `most`."""
    found, done, size = [], 0, 1_000
    with of.serve() as server:
        of.in_batches(server, A_CALL)
        while size <= most:
            calls = -(-(size - done) // A_CALL)
            measured = load(server.port, of.calls(A_CALL), CALLERS, seconds=3600, warm_up=0, most=calls)
            done += calls * A_CALL
            found.append(
                {"positions": size, "rate": measured.rate * A_CALL, "resident_mb": server.resident_bytes() / 1e6}
            )
            size *= 10
    return found


def measure(of: Measured, rounds: int, most: int) -> Figures:
    """Everything, by name."""
    bare = {
        size: [of.bare.rate_beside(size, of.seconds / 2), of.bare.rate_together(size, of.seconds / 2)] for size in SIZES
    }
    best = max(bare, key=lambda size: bare[size][0])
    steps: list[tuple[str, Callable[[], Any]]] = [
        (f"round {n}", lambda: of.headline(best)) for n in range(1, rounds + 1)
    ]
    found: Figures = {"bare": bare, "rounds": []}
    for _, step in tqdm(steps, desc="rounds"):
        found["rounds"].append(step())
    with of.serve() as server:
        found["ready_s"] = server.seconds_to_ready
        found["resident_mb"] = server.resident_bytes() / 1e6
        found["connections"] = {n: _told(of.one_by_one(server, n)) for n in tqdm(CONNECTIONS, desc="connections")}
        found["per_call"] = {n: n * of.in_batches(server, n).rate for n in tqdm(PER_CALL, desc="positions a call")}
    found["max_batch"] = {}
    for size in tqdm(SIZES, desc="batch size"):
        with of.serve(max_batch=size) as server:
            batches = A_CALL * of.in_batches(server, A_CALL).rate
            found["max_batch"][size] = {**_told(of.one_by_one(server, MANY)), "batches": batches}
    found["peers"] = of.peers()
    found["flat"] = _flat(of, most)
    found["headline"] = {name: statistics.median(one[name] for one in found["rounds"]) for name in found["rounds"][0]}
    found["cores"], found["model"] = of.bare.cores, of.model.name
    return found


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models-dir", type=Path, default=shipped_models())
    parser.add_argument("--model", default="movemask-6")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measure")
    parser.add_argument("--rounds", type=int, default=5, help="of the headline figures, of which the median is told")
    parser.add_argument("--positions", type=int, default=100_000, help="most that go through one service")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="where LitServe and BentoML are")
    parser.add_argument("--out", type=Path, help="folder for the page and plots, in place of benchmarks/results")
    arguments = parser.parse_args()
    of = Measured(arguments.models_dir.resolve(), arguments.model, arguments.seconds, arguments.peers)
    found = measure(of, arguments.rounds, arguments.positions)
    write(found, arguments.out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
