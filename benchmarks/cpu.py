"""CPU time of the service's process per position and per request, and of its network alone: `python -m benchmarks.cpu`.

CPU time moves less than a rate on a machine that others share, so changes are judged by it; rates are told too. Every
load in turn, in rounds, beside bare onnxruntime; medians are printed as a table. Default settings: the audit is on. A
machine that others share changes its pace by a third within minutes, so two versions are compared in turns: `--against
CHECKOUT`. What a load costs beyond the network is also told in units of python-chess's own work on the same positions.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import chess

from benchmarks.servers import ROOT, movemask
from benchmarks.serving import A_CALL, Measured
from movemask.network.files import shipped_models

#: Connections of single requests.
CONNECTIONS = (64, 16, 1)

#: Positions in a bare run.
_BARE = 64

#: Seconds that the recorder gets to write what was answered: that belongs to the cost.
_WRITTEN = 1.0


def one_round(of: Measured, checkouts: Mapping[str, Path]) -> dict[str, float]:
    """CPU time in microseconds by load, and the times of one connection as ratios; of each checkout in turn."""
    found = {"network": 1e6 * of.bare.cpu_seconds(of.seconds), "python-chess": 1e6 * chess_seconds(of.fens)}
    bare = of.bare.rate_beside(_BARE, of.seconds)
    loads = {f"{A_CALL} a call": (A_CALL, lambda server: of.in_batches(server, A_CALL))}
    for count in CONNECTIONS:
        loads[f"{count} connections"] = (1, lambda server, count=count: of.one_by_one(server, count))
    with ExitStack() as running:
        servers = {
            suffix: running.enter_context(movemask(of.models, of.model.name, root))
            for suffix, root in checkouts.items()
        }
        for server in servers.values():
            of.in_batches(server, A_CALL)  # to warm up
        time.sleep(_WRITTEN)
        for name, (size, load) in loads.items():
            for suffix, server in servers.items():
                before = server.cpu_seconds()
                measured = load(server)
                time.sleep(_WRITTEN)
                found[name + suffix] = 1e6 * (server.cpu_seconds() - before) / (measured.answered * size)
                if name != "1 connections":
                    found[f"{name}: rate over bare onnxruntime's{suffix}"] = measured.rate * size / bare
                else:
                    for cores, one in (("all cores", False), ("one core", True)):
                        lone = of.bare.lone_seconds(of.seconds / 2, one_core=one)
                        ratio = measured.percentile(50) / lone
                        found[f"one connection: p50 over a bare run on {cores}{suffix}"] = ratio
                    ratio = measured.percentile(99) / measured.percentile(50)
                    found[f"one connection: p99 over p50{suffix}"] = ratio
    found["network"] = (found["network"] + 1e6 * of.bare.cpu_seconds(of.seconds)) / 2
    found["python-chess"] = (found["python-chess"] + 1e6 * chess_seconds(of.fens)) / 2
    return found


def chess_seconds(fens: Sequence[str]) -> float:
    """CPU time of python-chess for a position: read it, its status, its legal moves."""
    started = time.process_time()
    for fen in fens:
        board = chess.Board(fen)
        board.status()
        list(board.legal_moves)
    return (time.process_time() - started) / len(fens)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models-dir", type=Path, default=shipped_models())
    parser.add_argument("--model", default="movemask-6")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, help="another checkout, whose service is measured in turns with ours")
    arguments = parser.parse_args()
    of = Measured(arguments.models_dir.resolve(), arguments.model, arguments.seconds, "")
    checkouts = {"": ROOT}
    if arguments.against is not None:
        checkouts[f", {arguments.against.name}"] = arguments.against.resolve()
    rounds = [one_round(of, checkouts) for _ in range(arguments.rounds)]
    print(f"| {arguments.model} | median | least | most | network's share | the rest, python-chess = 1 |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in rounds[0]:
        values = [one[name] for one in rounds]
        unit, digits = ("", 2) if "over" in name else (" µs", 0)
        share = rest = ""
        if unit and name not in ("network", "python-chess"):
            share = f"{statistics.median(one['network'] / one[name] for one in rounds):.2f}"
            rest = f"{statistics.median((one[name] - one['network']) / one['python-chess'] for one in rounds):.1f}"
        told = [f"{value:,.{digits}f}{unit}" for value in (statistics.median(values), min(values), max(values))]
        print(f"| {name} | {' | '.join(told)} | {share} | {rest} |")


if __name__ == "__main__":
    main()
