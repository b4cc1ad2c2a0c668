"""CPU time of the service's process per position and per request, and of its network alone: `python -m benchmarks.cpu`.

CPU time moves less than a rate on a machine that others share, so changes are judged by it. Every load in turn, in
rounds, beside bare onnxruntime; medians are printed as a table. Default settings: the audit is on.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from benchmarks.serving import A_CALL, Measured
from movemask.settings import shipped_models

#: Connections of single requests.
CONNECTIONS = (64, 16, 1)

#: Seconds that the recorder gets to write what was answered: that belongs to the cost.
_WRITTEN = 1.0


def one_round(of: Measured) -> dict[str, float]:
    """CPU time in microseconds by load, and the times of one connection as ratios."""
    found = {"network": 1e6 * of.bare.cpu_seconds(of.seconds)}
    loads = {f"{A_CALL} a call": (A_CALL, lambda server: of.in_batches(server, A_CALL))}
    for count in CONNECTIONS:
        loads[f"{count} connections"] = (1, lambda server, count=count: of.one_by_one(server, count))
    with of.serve() as server:
        of.in_batches(server, A_CALL)  # to warm up
        time.sleep(_WRITTEN)
        for name, (size, load) in loads.items():
            before = server.cpu_seconds()
            measured = load(server)
            time.sleep(_WRITTEN)
            found[name] = 1e6 * (server.cpu_seconds() - before) / (measured.answered * size)
        lone = of.bare.lone_seconds(of.seconds / 2)
        found["one connection: p50 over a bare run"] = measured.percentile(50) / lone
        found["one connection: p99 over p50"] = measured.percentile(99) / measured.percentile(50)
    found["network"] = (found["network"] + 1e6 * of.bare.cpu_seconds(of.seconds)) / 2
    return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models-dir", type=Path, default=shipped_models())
    parser.add_argument("--model", default="movemask-3")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    of = Measured(arguments.models_dir.resolve(), arguments.model, arguments.seconds, "")
    rounds = [one_round(of) for _ in range(arguments.rounds)]
    print(f"| {arguments.model} | median | least | most | network's share |\n|---|--:|--:|--:|--:|")
    for name in rounds[0]:
        values = [one[name] for one in rounds]
        unit, digits = ("", 2) if "over" in name else (" µs", 0)
        share = "" if unit == "" else f"{statistics.median(one['network'] / one[name] for one in rounds):.2f}"
        told = [f"{value:,.{digits}f}{unit}" for value in (statistics.median(values), min(values), max(values))]
        print(f"| {name} | {' | '.join(told)} | {share} |")


if __name__ == "__main__":
    main()
