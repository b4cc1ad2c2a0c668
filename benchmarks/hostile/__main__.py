"""Runs the trials and prints the rows of benchmarks/results/hostile.md: `scripts/test-hostile [TRIAL…] [--times N]`.

`--workers N` gives the services so many workers in place of the default.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator

from benchmarks.hostile import engine, load, slow
from benchmarks.hostile.clients import WORKERS
from benchmarks.hostile.trial import HEAD, Trial

#: Each trial, given how many times as long as usual it may take.
TRIALS: dict[str, Callable[[int], Iterator[Trial]]] = {
    "fairness": lambda times: load.fairness(12 * times),
    "overload": lambda times: load.overload(8 * times),
    "batches": lambda times: load.many_batches(10 * times),
    "bodies": lambda times: load.bodies(6 * times),
    "tools": lambda times: load.tools(5 * times),
    "slowloris": lambda times: slow.slowloris(300 * times),
    "unread": lambda times: slow.unread(200),
    "crowd": lambda times: slow.crowd(2000),
    "held": lambda times: slow.held(20),
    "endless": lambda times: slow.endless(),
    "engine": lambda times: engine.filled_engine(shutil.which("stockfish") or "/usr/games/stockfish"),
    "mates": lambda times: engine.mate_search(),
}


def main(argv: list[str]) -> int:
    """The number of promises that were not kept."""
    parser = argparse.ArgumentParser(prog="scripts/test-hostile", description=__doc__)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help=", ".join(TRIALS))
    parser.add_argument("--times", type=int, default=1, metavar="N", help="N times as long as usual")
    parser.add_argument("--workers", help="so many in place of the default")
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.trials if name not in TRIALS]
    if unknown:
        parser.error(f"no trial {', '.join(unknown)}; there are {', '.join(TRIALS)}")
    if arguments.workers:
        os.environ[WORKERS] = arguments.workers
    print(HEAD)
    broken = 0
    for name in arguments.trials or TRIALS:
        for row in TRIALS[name](arguments.times):
            print(row.row, flush=True)
            broken += not row.passed
    return broken


sys.exit(main(sys.argv[1:]))
