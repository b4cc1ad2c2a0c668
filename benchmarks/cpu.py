"""CPU time of a request by thread, as a Markdown table: `python -m benchmarks.cpu --against REVISION`.

One FEN a request, at the default log level, over several numbers of connections. Beside it are the network alone,
python-chess's own work on the same positions, and a FastAPI app with one route and a body. CPU time moves less than a
rate on a machine that others share, so changes are judged by it; rates are told too. Two versions are measured in
turns, because such a machine changes its pace by a third within minutes. Nothing else should run meanwhile. Linux only.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import chess

from benchmarks.servers import ROOT, Server, bare_route, movemask
from benchmarks.serving import Measured
from movemask.network.files import shipped_models

#: Connections of single requests.
CONNECTIONS = (64, 16, 4, 1)

#: Seconds that the recorder gets to write what was answered: that belongs to the cost.
_WRITTEN = 1.0

#: What a thread does, by its name, also in earlier versions.
_PARTS = {
    r"network-": "network threads",
    r"recorder|after-": "after the reply",
    r"log|Thread-\d+ \(_m": "log",  # logging.handlers.QueueListener._monitor
    r"python": "event loop",
}
_REST, _ALL = "the rest", "all"

#: The rows of the table.
_ROWS = ("network threads", "event loop", "log", "after the reply", _REST, _ALL)


def microseconds(server: Server, of: Measured, connections: int) -> dict[str, float]:
    """CPU time of a request by part of the service, in microseconds, and the requests a second as `rate`."""
    before = server.thread_seconds()
    measured = of.one_by_one(server, connections)
    time.sleep(_WRITTEN)
    costs = dict.fromkeys(_ROWS, 0.0)
    for thread, seconds in server.thread_seconds().items():
        spent = 1e6 * (seconds - before.get(thread, 0.0)) / measured.answered
        part = next((part for name, part in _PARTS.items() if re.match(name, thread[1])), _REST)
        costs[part] += spent
        costs[_ALL] += spent
    return {**costs, "rate": measured.rate}


def one_round(of: Measured, checkouts: Mapping[str, Path]) -> dict[tuple[str, str, int], float]:
    """Each figure by its name, checkout and connections; of the checkouts in turn."""
    figures: dict[tuple[str, str, int], float] = {}
    with ExitStack() as running:
        servers = {
            name: running.enter_context(movemask(of.models, of.model.name, root, log_level="info"))
            for name, root in checkouts.items()
        }
        bare = running.enter_context(bare_route())
        for server in (*servers.values(), bare):
            of.one_by_one(server, max(CONNECTIONS))  # to warm up
        time.sleep(_WRITTEN)
        for connections in CONNECTIONS:
            for name, server in servers.items():
                for row, value in microseconds(server, of, connections).items():
                    figures[row, name, connections] = value
            figures["bare route", "", connections] = microseconds(bare, of, connections)[_ALL]
    figures["network", "", 0] = 1e6 * of.bare.cpu_seconds(of.seconds)
    figures["python-chess", "", 0] = 1e6 * chess_seconds(of.fens)
    return figures


def chess_seconds(fens: Sequence[str]) -> float:
    """CPU time of python-chess for a position: read it, its status, its legal moves."""
    started = time.process_time()
    for fen in fens:
        board = chess.Board(fen)
        board.status()
        list(board.legal_moves)
    return (time.process_time() - started) / len(fens)


def table(rounds: Sequence[Mapping[tuple[str, str, int], float]], checkouts: Sequence[str]) -> str:
    """The medians of the rounds. If there are two checkouts, the second stands in brackets."""

    def median(*key: str | int) -> str:
        return f"{statistics.median(one[key] for one in rounds):,.0f}"  # type: ignore[index]

    def cells(row: str) -> str:
        medians = [[median(row, name, count) for name in checkouts] for count in CONNECTIONS]
        return " | ".join(first + "".join(f" ({other})" for other in others) for first, *others in medians)

    lines = [f"| µs of CPU a request | {' | '.join(f'{count} connections' for count in CONNECTIONS)} |"]
    lines += [f"|---|{'--:|' * len(CONNECTIONS)}"]
    lines += [f"| {row} | {cells(row)} |" for row in _ROWS]
    bare = " | ".join(median("bare route", "", count) for count in CONNECTIONS)
    lines += [f"| a bare FastAPI route with a body | {bare} |", f"| requests a second | {cells('rate')} |"]
    network, moves = median("network", "", 0), median("python-chess", "", 0)
    alone = f"The network alone takes {network} µs a position, python-chess {moves}."
    return "\n".join([*lines, "", alone])


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models-dir", type=Path, default=shipped_models())
    parser.add_argument("--model", default="movemask-8")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", metavar="REVISION", help="of this repository, measured in turns with what is here")
    arguments = parser.parse_args()
    of = Measured(arguments.models_dir.resolve(), arguments.model, arguments.seconds, "")
    with tempfile.TemporaryDirectory() as folder:
        checkouts = {"": ROOT}
        if arguments.against is not None:
            command = ["git", "archive", arguments.against, "service"]
            archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
            checkouts[arguments.against] = Path(folder)
        rounds = [one_round(of, checkouts) for _ in range(arguments.rounds)]
    print(f"{of.model.name}, {of.bare.cores} cores" + "".join(f"; in brackets: {name}" for name in checkouts if name))
    print()
    print(table(rounds, list(checkouts)))


if __name__ == "__main__":
    main()
