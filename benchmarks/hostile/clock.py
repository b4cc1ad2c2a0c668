"""The system's clock set back and forth by an hour while the service answers, through libfaketime."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from benchmarks.hostile.clients import Service, service
from benchmarks.hostile.faults import ask, figures
from benchmarks.hostile.load import SINGLE
from benchmarks.hostile.trial import Trial

_JUMPS = ("+1h", "+0", "-1h", "+0", "+1h", "-1h", "+0")


def _library() -> Path | None:
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


def _until_refused(tried: Service) -> tuple[int, int]:
    """Asks until its share is used up: how many were answered, and the seconds after which it may come again."""
    body = SINGLE.partition(b"\r\n\r\n")[2]
    asked = urllib.request.Request(
        f"http://127.0.0.1:{tried.port}/v1/policy", body, {"Content-Type": "application/json"}
    )
    for answered in range(60):
        try:
            with urllib.request.urlopen(asked, timeout=10):
                pass
        except urllib.error.HTTPError as error:
            return answered, int(error.headers["Retry-After"])
    return 60, 0


def clock(seconds: float) -> Iterator[Trial]:
    """Answers, shares and the audit while the wall clock jumps; monotonic clocks go on, as they do on a real system."""
    library = _library()
    if library is None:
        print("SKIPPED: libfaketime is not installed here (apt-get install faketime)")
        return
    with service() as probe:
        file = probe.folder / "clock"
        file.write_text("+0")
        variables = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        with service(variables, client_rate="10", client_burst="20") as tried:
            bad, answered, shared, longest, sees = 0, 0, 0, 0, []
            for jump in _JUMPS:
                file.write_text(jump)
                with urllib.request.urlopen(f"http://127.0.0.1:{tried.port}/livez", timeout=10) as alive:
                    sees.append(alive.headers["Date"])
                times = ask(tried, seconds)
                bad += sum(map(len, times.seconds.values())) - times.count(200) - times.count(429)
                answered += times.count(200)
                shared += times.count(429)
                more, retry = _until_refused(tried)
                answered, longest = answered + more, max(longest, retry)
                time.sleep(1.2)
            time.sleep(2)
            audit = figures(tried, "/readyz")["audit"]
            counted = sum(one["positions"] for one in figures(tried, "/v1/leakage?since=3h")["models"].values())
        hours = len({date[-12:-9] for date in sees if date})
        seen = (
            f"{len(_JUMPS)} settings ({hours} different hours told); {answered} answered, {shared} over "
            f"the share, {bad} failed; Retry-After at most {longest} s; the audit has {counted} positions, "
            f"{audit['dropped']} dropped, failure: {audit['failure']}"
        )
        kept = bad == 0 and 1 <= longest <= 2 and audit["failure"] is None and counted == answered
        yield Trial(
            "the clock is set forth and back by an hour, under load",
            "answers, shares and the audit go on",
            seen,
            kept,
        )
