"""What happens to a PostgreSQL server while the service answers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from benchmarks.hostile.clients import Service, service
from benchmarks.hostile.faults import ask, figures
from benchmarks.hostile.trial import Trial
from tests.postgres import Server, binaries, running

_CLIENTS = 8


@contextmanager
def _gone(server: Server, url: str) -> Iterator[None]:
    server.stop()
    yield
    server.start()


@contextmanager
def _stopped(server: Server, url: str) -> Iterator[None]:
    """Every process of the server hangs: connections stay open, and nothing answers."""
    main = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    for number in (signal.SIGSTOP, signal.SIGCONT):
        with open(f"/proc/{main}/task/{main}/children") as children:
            for pid in (*children.read().split(), main):
                os.kill(int(pid), number)
        if number == signal.SIGSTOP:
            yield


@contextmanager
def _read_only(server: Server, url: str) -> Iterator[None]:
    name = url.rsplit("/", 1)[1]
    for state in ("on", "off"):
        server.execute(
            f"ALTER DATABASE {name} SET default_transaction_read_only = {state}",
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
        )
        if state == "on":
            yield


@contextmanager
def _locked(server: Server, url: str) -> Iterator[None]:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as other:
        other.execute(sa.text("LOCK TABLE position IN ACCESS EXCLUSIVE MODE"))
        yield
    engine.dispose()


_FAULTS: dict[str, Callable[[Server, str], object]] = {
    "stopped at once and started again": _gone,
    "hanging (SIGSTOP)": _stopped,
    "read-only": _read_only,
    "locked by another transaction": _locked,
}


def _counted(tried: Service) -> int:
    """How many positions the ledger has, by all workers; -1 if it cannot be read."""
    try:
        return sum(one["positions"] for one in figures(tried, "/v1/leakage")["models"].values())
    except OSError:
        return -1


def postgres(seconds: float) -> Iterator[Trial]:
    """Each fault for a time, under steady load."""
    tools = binaries()
    if tools is None:
        print("SKIPPED: PostgreSQL is not installed here")
        return
    with running(tools) as server:
        for name, fault in _FAULTS.items():
            url = server.database()
            with service(database_url=url) as tried:
                before = ask(tried, 2, _CLIENTS)
                with fault(server, url):  # type: ignore[attr-defined]
                    during = ask(tried, seconds, _CLIENTS)
                after = ask(tried, 2, _CLIENTS)
                answered = sum(one.count(200) for one in (before, during, after))
                begun = time.monotonic()
                counted = _counted(tried)
                while counted != answered and time.monotonic() - begun < 30:
                    time.sleep(0.5)
                    counted = _counted(tried)
                took = time.monotonic() - begun
                state = figures(tried, "/readyz")["audit"]
                bad = sum(map(len, during.seconds.values())) - during.count(200)
                seen = (
                    f"{bad} of {during.count(200) + bad} requests failed, p99 {during.ms(200, 0.99):.0f} ms (before "
                    f"{before.ms(200, 0.99):.0f}); {took:.0f} s later the audit has {counted} of {answered} positions, "
                    f"{state['dropped']} dropped"
                )
                kept = bad == 0 and state["failure"] is None and counted == answered
                yield Trial(
                    f"PostgreSQL is {name} for {seconds:.0f} s beside {_CLIENTS} clients",
                    "answers go on; all of the audit is written",
                    seen,
                    kept,
                )
