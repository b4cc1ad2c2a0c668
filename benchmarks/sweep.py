"""What a sweep costs beside its network, as a Markdown table: `python -m benchmarks.sweep`.

The network alone: `Model.evaluate` of a batch with the position at every rating. The sweep: `POST /v1/policy/sweep`
over a connection that stays open to a service of its own, from the request to the last byte. One thread, so that both
do the same work; rounds in turn, and the median of each.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import chess

from movemask.board.position import Position
from movemask.games.sweep import Vary, elos_of
from movemask.network.files import shipped_models
from movemask.network.model import Model
from movemask.network.registry import load_registry
from tests.processes import served

ROUNDS, WARM_UP = 200, 20
POSITIONS = {
    "the start": chess.STARTING_FEN,
    "a middlegame": "r1bq1rk1/pp2bppp/2n1pn2/2pp4/3P1B2/2PBPN2/PP1N1PPP/R2QK2R w KQ - 4 8",
    "an endgame": "8/5pk1/6p1/8/3R4/6P1/5PK1/2r5 w - - 0 40",
}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="the default if left out")
    parser.add_argument("--models-dir", type=Path, default=shipped_models())
    arguments = parser.parse_args()
    model = load_registry(arguments.models_dir, None, 1).get(arguments.model)
    elos = elos_of(model.name, model.contract, None, Vary.BOTH, None)
    print(f"| {model.name}, {len(elos)} ratings | network, ms | sweep, ms | ratio |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for file in arguments.models_dir.iterdir():
            (Path(folder) / file.name).symlink_to(file.resolve())
        with served(Path(folder), "--threads", "1") as (_, port):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            for name, fen in POSITIONS.items():
                network, sweep = _medians(_network(model, fen), _asked(connection, model, fen))
                print(f"| {name} | {1e3 * network:.2f} | {1e3 * sweep:.2f} | {sweep / network:.2f} |")


def _network(model: Model, fen: str) -> Callable[[], object]:
    elos = elos_of(model.name, model.contract, None, Vary.BOTH, None)
    batch = model.whole_batch([Position.read(fen)] * len(elos), elos)
    return lambda: model.run(batch)


def _asked(connection: http.client.HTTPConnection, model: Model, fen: str) -> Callable[[], object]:
    body = json.dumps({"fen": fen, "model": model.name, "include": ["san"]})

    def asked() -> bytes:
        connection.request("POST", "/v1/policy/sweep", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return text

    return asked


def _medians(*works: Callable[[], object]) -> list[float]:
    """The median time of each, in seconds, the works taken in turn."""
    times: list[list[float]] = [[] for _ in works]
    for number in range(WARM_UP + ROUNDS):
        for work, own in zip(works, times, strict=True):
            started = time.perf_counter()
            work()
            if number >= WARM_UP:
                own.append(time.perf_counter() - started)
    return [statistics.median(own) for own in times]


if __name__ == "__main__":
    main()
