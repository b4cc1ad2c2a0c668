"""Runs the trials and prints the rows of docs/reliability.md: `scripts/test-hostile [TRIAL…] [--long]`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from benchmarks.hostile import faults, fuzz, load, slow
from benchmarks.hostile.trial import HEAD, Trial

#: Each trial, given how many times as long as usual it may take.
TRIALS: dict[str, Callable[[int], Iterator[Trial]]] = {
    "fairness": lambda times: load.fairness(12 * times),
    "overload": lambda times: load.overload(8 * times),
    "batches": lambda times: load.many_batches(10 * times),
    "slowloris": lambda times: slow.slowloris(200 * times),
    "unread": lambda times: slow.unread(200),
    "crowd": lambda times: slow.crowd(2000),
    "heads": lambda times: slow.heads(10),
    "stopping": lambda times: slow.stopping(),
    "database": lambda times: faults.database(),
    "swapped": lambda times: faults.swapped(10 * times),
    "fuzz": lambda times: fuzz.fuzz(40 * times),
    "soak": lambda times: faults.soak(60 * times),
}


def main(arguments: list[str]) -> int:
    """The number of promises that were not kept."""
    times = 10 if "--long" in arguments else 1
    names = [name for name in arguments if name != "--long"] or list(TRIALS)
    unknown = [name for name in names if name not in TRIALS]
    if unknown:
        print(f"no trial {', '.join(unknown)}; there are {', '.join(TRIALS)}", file=sys.stderr)
        return 1
    print(HEAD)
    broken = 0
    for name in names:
        for trial in TRIALS[name](times):
            print(trial.row, flush=True)
            broken += not trial.kept
    return broken


sys.exit(main(sys.argv[1:]))
