"""What a second session of several threads is worth to one client: `python -m benchmarks.lone [--model NAME]`.

Two services, with `MOVEMASK_LONE_THREADS` 1 and at its default, are asked in turns by one connection that sends a
request as soon as the last is answered. A first line has bare onnxruntime's session, with one thread and with one for
each core, back to back and after pauses. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from tqdm import tqdm

from benchmarks.load import load, request
from benchmarks.positions import random_games
from benchmarks.servers import movemask
from movemask.board.position import Position
from movemask.network.files import shipped_models
from movemask.network.model import Model
from movemask.network.registry import load_registry, lone_session
from movemask.server.settings import available_cores

PAUSES = (0.0, 0.002, 0.005, 0.02)


def _percentiles(seconds: Iterable[float]) -> str:
    return " | ".join(f"{value:.2f}" for value in 1e3 * np.percentile(list(seconds), [50, 90, 99]))


def _bare(model: Model, pause: float) -> list[str]:
    sessions = {1: model.session, available_cores(): lone_session(model, available_cores())}
    feeds = [model.feeds(model.whole_batch([Position.read(fen)])) for fen in random_games(100)]
    taken: dict[int, list[float]] = {threads: [] for threads in sessions}
    names = [model.contract.outputs.logits]
    for _ in range(3):
        for threads, session in sessions.items():
            assert session is not None
            for one in feeds:
                time.sleep(pause)
                began = time.perf_counter()
                session.run(one, names)
                taken[threads].append(time.perf_counter() - began)
    return [
        f"| bare, {threads} threads, after {1e3 * pause:g} ms | {_percentiles(seconds)} |"
        for threads, seconds in taken.items()
    ]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models-dir", type=Path, default=shipped_models())
    parser.add_argument("--model", default="movemask-6")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measure")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    models = given.models_dir.resolve()
    model = load_registry(models, given.model, 1).get(given.model)
    print("| ms | p50 | p90 | p99 |\n|---|---:|---:|---:|")
    for pause in PAUSES:
        print("\n".join(_bare(model, pause)), flush=True)
    asked = [request("/v1/policy", orjson.dumps({"fen": fen})) for fen in random_games(400)]
    taken: dict[str, list[float]] = {"1": [], "default": []}
    for _ in tqdm(range(given.rounds), desc="rounds", leave=False):
        for name, seconds in taken.items():
            settings: dict[str, Any] = {} if name == "default" else {"lone_threads": name}
            with movemask(models, given.model, **settings) as server:
                seconds += load(server.port, asked, 1, given.seconds).seconds
    for name, seconds in taken.items():
        print(f"| `POST /v1/policy`, MOVEMASK_LONE_THREADS {name} | {_percentiles(seconds)} |")


if __name__ == "__main__":
    main()
