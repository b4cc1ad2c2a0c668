"""What a second core and a second worker bring: `python -m benchmarks.second_core --models-dir DIR --model NAME`.

One worker bound to one core, with the client on another, beside two workers on both with the client among them; the
rate of the two is also told as if the client's share of the cores were theirs. Bare onnxruntime gets the same cores.
Linux, two cores or more; nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import orjson

from benchmarks.bare import Bare
from benchmarks.load import load, request
from benchmarks.positions import random_games
from benchmarks.servers import movemask
from movemask.network.registry import load_registry, network_file

CONNECTIONS = 64
SECONDS = 8.0
BATCH = 32  # positions a run of bare onnxruntime
ALL_READY = 5.0  # seconds after which every worker takes connections


def served(models: Path, name: str, workers: int, cores: set[int], client: set[int]) -> tuple[float, float]:
    """Requests a second, and the cores that the client used."""
    asked = [request("/v1/policy", orjson.dumps({"fen": fen})) for fen in random_games(4_000)]
    os.sched_setaffinity(0, cores)  # what is started meanwhile stays there
    with movemask(models, name, workers=workers, threads=len(cores)) as server:
        os.sched_setaffinity(0, client)
        time.sleep(ALL_READY)
        load(server.port, asked, CONNECTIONS, seconds=1)
        before, started = time.process_time(), time.perf_counter()
        found = load(server.port, asked, CONNECTIONS, SECONDS, warm_up=0)
        return found.rate, (time.process_time() - before) / (time.perf_counter() - started)


def bare(file: Path, cores: set[int]) -> float:
    """Positions a second."""
    os.sched_setaffinity(0, cores)
    return Bare(file, len(cores)).rate_beside(BATCH, SECONDS / 2)


def main() -> None:
    """Prints a line for each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models-dir", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    models = arguments.models_dir.resolve()
    file = network_file(
        models / f"{arguments.model}.toml", load_registry(models, arguments.model, 1).get(arguments.model).contract
    )
    assert file is not None
    first, second = sorted(os.sched_getaffinity(0))[:2]
    both = {first, second}
    for _ in range(arguments.rounds):
        one, _ = served(models, arguments.model, 1, {first}, {second})
        two, client = served(models, arguments.model, 2, both, both)
        alone = two * 2 / (2 - client)
        bare_one, bare_two = bare(file, {first}), bare(file, both)
        print(
            f"one worker {one:.0f}/s; two {two:.0f}/s, without the client {alone:.0f}/s: {alone / one:.2f} times; "
            f"bare onnxruntime {bare_one:.0f} and {bare_two:.0f}/s: {bare_two / bare_one:.2f} times",
            flush=True,
        )


if __name__ == "__main__":
    main()
