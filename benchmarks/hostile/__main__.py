"""Runs the trials and prints the rows of benchmarks/results/hostile.md: `scripts/test-hostile [TRIAL…] [--times N]`.

`--workers N` gives the services so many workers in place of the default.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.hostile import clock, faults, fuzz, guided, load, postgres, slow, workers
from benchmarks.hostile.clients import BEHIND_NGINX, WORKERS
from benchmarks.hostile.trial import HEAD, Trial

#: Each trial, given how many times as long as usual it may take.
TRIALS: dict[str, Callable[[int], Iterator[Trial]]] = {
    "fairness": lambda times: load.fairness(12 * times),
    "overload": lambda times: load.overload(8 * times),
    "batches": lambda times: load.many_batches(10 * times),
    "bodies": lambda times: load.bodies(6 * times),
    "slowloris": lambda times: slow.slowloris(300 * times),
    "unread": lambda times: slow.unread(200),
    "exports": lambda times: slow.exports(),
    "crowd": lambda times: slow.crowd(2000),
    "heads": lambda times: slow.heads(10),
    "endless": lambda times: slow.endless(),
    "stopping": lambda times: slow.stopping(),
    "database": lambda times: faults.database(),
    "postgres": lambda times: postgres.postgres(4 * times),
    "clock": lambda times: clock.clock(2),
    "workers": lambda times: workers.workers(16 * times),
    "swapped": lambda times: faults.swapped(10 * times),
    "fuzz": lambda times: fuzz.fuzz(40 * times),
    "guided": lambda times: guided.guided(30 * times),
    "soak": lambda times: faults.soak(60 * times),
}


def main(arguments: list[str]) -> int:
    """The number of promises that were not kept."""
    parser = argparse.ArgumentParser(prog="scripts/test-hostile", description=__doc__)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help=", ".join(TRIALS))
    parser.add_argument("--times", type=int, default=1, metavar="N", help="N times as long as usual")
    parser.add_argument("--tally", type=Path, help="file to which fuzz adds its counts, for a trial in pieces")
    parser.add_argument("--nginx", action="store_true", help="through nginx by deploy/proxies/nginx.conf, without TLS")
    parser.add_argument("--workers", help="so many in place of the default")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.trials if name not in TRIALS]
    if unknown:
        parser.error(f"no trial {', '.join(unknown)}; there are {', '.join(TRIALS)}")
    if given.nginx:
        os.environ[BEHIND_NGINX] = "yes"
    if given.workers:
        os.environ[WORKERS] = given.workers
    print(HEAD)
    broken = 0
    for name in given.trials or TRIALS:
        trial = partial(fuzz.fuzz, tally=given.tally) if name == "fuzz" and given.tally else None
        for row in trial(40 * given.times) if trial else TRIALS[name](given.times):
            print(row.row, flush=True)
            broken += not row.kept
    return broken


sys.exit(main(sys.argv[1:]))
