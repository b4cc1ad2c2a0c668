"""The service under load, beside bare onnxruntime and the peers that are installed: `python -m benchmarks.serving`.

Everything is measured in one run on one machine, client included, in rounds, so that a machine that changes its pace
changes it for all. Prints the tables of benchmarks/results/serving.md. Nothing else should run meanwhile. `--peers`
names the Python that LitServe and BentoML are installed in, if it is another one.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from benchmarks.bare import Bare
from benchmarks.load import Load, load, request
from benchmarks.positions import random_games
from benchmarks.servers import PEERS, CannotStart, Server, movemask, peer
from movemask.cores import available_cores
from movemask.network.files import shipped_models
from movemask.network.model import Model
from movemask.network.registry import load_registry, network_file

MANY, SOME, A_CALL, CALLERS = 64, 16, 256, 2

#: Positions in a bare run.
_BARE = 64

#: A finished game, which needs no network: HTTP and the FEN alone.
MATE = "r1bqkb1r/pppp1Qpp/2n2n2/4p3/2B1P3/8/PPPP1PPP/RNB1K1NR b KQkq - 0 4"

Figures = dict[str, Any]


class Measured:
    """One model behind one service and one onnxruntime; every measure is `seconds` long."""

    def __init__(self, models: Path, name: str | None, seconds: float, python: str) -> None:
        self.models, self.seconds, self.python = models, seconds, python
        self.model: Model = load_registry(models, name, 1).get(name)
        file = network_file(models / f"{self.model.name}.toml", self.model.contract)
        assert file is not None
        self.file = file
        self.bare = Bare(file, available_cores())
        self.fens = random_games(4_000)

    def serve(self, **settings: object) -> Any:
        return movemask(self.models, self.model.name, **settings)

    def one_by_one(self, server: Server, connections: int, fens: Sequence[str] | None = None) -> Load:
        requests = [request("/v1/policy", orjson.dumps({"fen": fen})) for fen in fens or self.fens]
        return load(server.port, requests, connections, self.seconds)

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

    def headline(self) -> Figures:
        """The headline figures, once: the service several ways, between two measures of bare onnxruntime."""
        before = self.bare.rate_beside(_BARE, self.seconds)
        lone = self.bare.lone_seconds(self.seconds / 2)
        paused = self.bare.lone_seconds(self.seconds / 2, pause=lone)
        with self.serve() as server:
            batches = self.in_batches(server, A_CALL)
            many, some, alone = (self.one_by_one(server, connections) for connections in (MANY, SOME, 1))
            finished = self.one_by_one(server, MANY, [MATE])
        after = self.bare.rate_beside(_BARE, self.seconds)
        return {
            "bare": (before + after) / 2,
            "bare_lone_ms": 1e3 * lone,
            "bare_paused_ms": 1e3 * paused,
            "batches": A_CALL * batches.rate,
            "some": some.rate,
            "finished": finished.rate,
            **{f"many_{name}": value for name, value in _told(many).items()},
            **{f"lone_{name}": value for name, value in _told(alone).items()},
        }

    def peers(self) -> dict[str, Figures | str]:
        """Requests a second and percentiles of each, or why there are none."""
        terms = self.model.contract.terms
        if (terms.planes, terms.vocabulary) != ("lc0-112", "lc0-1858"):
            return dict.fromkeys(PEERS, "the examples are of lc0's networks")
        figures: dict[str, Any] = {}
        for name in PEERS:
            python = self.python if name != "a plain FastAPI handler" else sys.executable
            try:
                with peer(name, python, self.model, self.file) as server:
                    body = (lambda fen: {"fens": [fen]}) if name == "BentoML" else (lambda fen: {"fen": fen})
                    requests = [request("/policy", orjson.dumps(body(fen))) for fen in self.fens]
                    many, alone = (load(server.port, requests, connections, self.seconds) for connections in (MANY, 1))
                    figures[name] = {**_told(many), "lone_rate": alone.rate}
            except CannotStart as error:
                figures[name] = str(error)
        return figures


def _told(measured: Load) -> Figures:
    return {"rate": measured.rate, **{f"p{q}_ms": 1e3 * measured.percentile(q) for q in (50, 99)}}


def _headline(h: Figures, rounds: Sequence[Figures]) -> list[list[str]]:
    def rate(name: str, what: str) -> list[str]:
        ratios = [one[name] / one["bare"] for one in rounds]
        return [f"{h[name]:,.0f} {what}", f"{h[name] / h['bare']:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"]

    def times(above: str, below: str, of: str) -> list[str]:
        return [f"{h[above]:.2f} ms over {h[below]:.2f} ms{of}", f"{h[above] / h[below]:.1f}"]

    return [
        ["bare onnxruntime, inputs ready", f"{h['bare']:,.0f} positions/s", "1"],
        ["`POST /v1/policy/batch`, 256 a call", *rate("batches", "positions/s")],
        ["`POST /v1/policy`, 64 connections", *rate("many_rate", "requests/s")],
        ["… p99 over p50", *times("many_p99_ms", "many_p50_ms", "")],
        ["… of a finished game: HTTP and the FEN alone", *rate("finished", "requests/s")],
        ["`POST /v1/policy`, 16 connections", *rate("some", "requests/s")],
        ["`POST /v1/policy`, one connection, p50", *times("lone_p50_ms", "bare_lone_ms", " of a bare run")],
        ["… over a bare run after a pause", *times("lone_p50_ms", "bare_paused_ms", "")],
        ["… p99 over p50", *times("lone_p99_ms", "lone_p50_ms", "")],
    ]


def _peers(h: Figures, peers: Figures) -> list[list[str]]:
    rows = [["movemask", f"{h['many_rate']:,.0f}", f"{h['many_p50_ms']:.0f}, {h['many_p99_ms']:.0f} ms", "1", "1"]]
    for name, figures in peers.items():
        if isinstance(figures, str):
            rows.append([name, f"not measured: {figures}", "", "", ""])
        else:
            ours = [f"{h['many_rate'] / figures['rate']:.1f}", f"{h['lone_rate'] / figures['lone_rate']:.1f}"]
            rows.append(
                [name, f"{figures['rate']:,.0f}", f"{figures['p50_ms']:.0f}, {figures['p99_ms']:.0f} ms", *ours]
            )
    return rows


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models-dir", type=Path, default=shipped_models())
    parser.add_argument("--model", help="by default the shipped one")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measure")
    parser.add_argument("--rounds", type=int, default=5, help="the median is told, with the least and the most")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="where LitServe and BentoML are")
    arguments = parser.parse_args()
    of = Measured(arguments.models_dir.resolve(), arguments.model, arguments.seconds, arguments.peers)
    rounds = [of.headline() for _ in range(arguments.rounds)]
    h = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    print(f"### {of.model.name}, {of.bare.cores} cores\n")
    print(_table(["what", "median of the rounds", "ratio (least to most)"], _headline(h, rounds)), "\n")
    print("One FEN a request, 64 connections, the same network ([examples](../../benchmarks/peers)):\n")
    print(_table(["server", "requests/s", "p50, p99", "ours over it", "with one connection"], _peers(h, of.peers())))


if __name__ == "__main__":
    main()
