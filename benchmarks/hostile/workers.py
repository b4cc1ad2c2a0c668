"""Worker processes killed, stopped and set to stop for good while clients ask."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator

from benchmarks.hostile.clients import Service, Times, repeat, service
from benchmarks.hostile.load import SINGLE
from benchmarks.hostile.trial import Trial
from movemask.server.process.supervisor import ANSWER_SECONDS
from tests import processes

_CLIENTS = 16


def _workers(tried: Service) -> list[int]:
    """Process ids of the workers that have begun to serve."""
    log = (tried.folder / "log.txt").read_text()
    started = processes.workers(tried.process.pid)
    return sorted(pid for pid in started if f"worker {pid} serves" in log)


def workers(seconds: float) -> Iterator[Trial]:
    """One of two workers is killed, or stops, again and again; those whose connection it had ask again."""
    for number, what in ((signal.SIGKILL, "killed"), (signal.SIGTERM, "ended"), (signal.SIGSTOP, "stopped for good")):
        pause = ANSWER_SECONDS + 1 if number == signal.SIGSTOP else 1
        with service(workers="2") as tried:
            times, struck = Times(), 0

            async def trial(tried: Service, times: Times, number: signal.Signals, pause: float) -> int:
                end, struck = time.monotonic() + max(seconds, 3 * pause), list[int]()
                asking = [asyncio.create_task(repeat(tried.port, SINGLE, end, times)) for _ in range(_CLIENTS)]
                while time.monotonic() < end - pause - 5:
                    await asyncio.sleep(1)
                    found = _workers(tried)
                    if len(found) == 2 and not {*found} & {*struck}:  # one that ends is no longer one of two
                        struck.append(found[len(struck) % 2])
                        os.kill(struck[-1], number)
                        await asyncio.sleep(pause)
                await asyncio.gather(*asking)
                return len(struck)

            struck = asyncio.run(trial(tried, times, number, pause))
            left, after = len(_workers(tried)), Times()
            asyncio.run(repeat(tried.port, SINGLE, time.monotonic() + 1, after))
            total = sum(map(len, times.seconds.values()))
            seen = (
                f"{struck} times; {times.count(200)} of {total} requests answered, {times.count(0)} connections lost, "
                f"{times.count(503)} refused; the longest answer {1e3 * max(times.seconds[200]) / 1e3:.1f} s; then "
                f"{left} workers, {after.count(200)} of {sum(map(len, after.seconds.values()))} answered"
            )
            most = struck * _CLIENTS
            kept = (
                left == 2
                and times.count(0) <= most
                and after.count(0) == 0
                and total == times.count(200) + times.count(0)
            )
            promised = "replaced; no connection is lost but those of the worker"
            yield Trial(f"one of two workers is {what} beside {_CLIENTS} clients", promised, seen, kept)
