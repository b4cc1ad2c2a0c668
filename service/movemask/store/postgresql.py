"""Connections to PostgreSQL on which no wait is endless, whatever becomes of the server or the network between."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg.abc import PQGen

R = TypeVar("R")

#: Seconds that connecting, a lock and a statement may take. The server ends the last two, if it can.
_CONNECT_SECONDS, _LOCK_SECONDS, _STATEMENT_SECONDS = 5, 5, 8
#: Seconds of silence after which the client gives up on the server: longer than a statement may take.
_ANSWER_SECONDS = 10.0
#: Seconds without a statement after which the server ends a transaction, whose client is gone or has given up. Until
#: then its locks hold up the client's next try, also the last one of a service that stops.
_IDLE_SECONDS = 3

#: How the system finds out that a server is gone: probes after 5 silent seconds, every 2 seconds, 3 times, and at most
#: 10 seconds without an acknowledgement of what was sent. It is all that ends a wait `without_limits`.
_TCP = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000}


@dataclass(slots=True)
class Patience:
    """How long the connections of an engine wait for the server, now."""

    answer_seconds: float


class Connection(psycopg.Connection[Any]):
    """A connection that closes itself, with an OperationalError, once the server has been silent too long.

    A server can be silent although the system's connection is alive: it hangs, or a proxy before it does. The server's
    own limits do not end that, nor do TCP's.
    """

    patience = Patience(math.inf)
    without_limits = False

    def wait(self, gen: PQGen[R], *args: Any, **options: Any) -> R:
        """psycopg's wait for the server, of which every statement, commit and rollback consists."""
        return super().wait(self._until_silent(gen), *args, **options)

    def _until_silent(self, gen: PQGen[R]) -> Generator[Any, Any, R]:
        """`gen`, which is sent what the socket is ready for, or 0 several times a second while it is not ready."""
        heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = time.monotonic()
                elif not self.without_limits and time.monotonic() - heard > self.patience.answer_seconds:
                    self.close()
                    raise psycopg.OperationalError(f"no answer for {time.monotonic() - heard:.0f} seconds")
                wanted = gen.send(ready)
        except StopIteration as done:
            result: R = done.value
            return result


def engine(url: sa.URL) -> tuple[sa.Engine, Patience]:
    """An engine for a database, and the patience of its connections. Parameters in the URL outrank those set here."""
    patience = Patience(_ANSWER_SECONDS)
    defaults = {"connect_timeout": _CONNECT_SECONDS, "application_name": "movemask", **_TCP}
    limits = {
        "lock_timeout": f"{_LOCK_SECONDS}s",
        "statement_timeout": f"{_STATEMENT_SECONDS}s",
        "idle_in_transaction_session_timeout": f"{_IDLE_SECONDS}s",
    }
    options = [*(f"-c {name}={value}" for name, value in limits.items()), str(url.query.get("options", ""))]
    made = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        paramstyle="format",  # parameters by place, as in SQLite
        pool_pre_ping=True,  # a connection from before an outage is replaced, and nobody notices
        pool_size=2,  # the recorder and two readers: there may be many processes
        max_overflow=1,
        connect_args={
            **{name: value for name, value in defaults.items() if name not in url.query},
            "options": " ".join(options),
        },
    )

    @sa.event.listens_for(made, "do_connect")
    def connect(dialect: object, record: object, args: list[Any], options: dict[str, Any]) -> Connection:
        connection = Connection.connect(*args, **options)
        connection.patience = patience
        return connection

    @sa.event.listens_for(made, "checkout")
    def checkout(connection: Connection, record: object, proxy: object) -> None:
        connection.without_limits = False

    return made, patience


def lift_limits(connection: sa.Connection) -> None:
    """Lets the statements of this transaction take any time: those of a migration, or of a large deletion."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, Connection)
    driver.without_limits = True
    for limit in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
        connection.exec_driver_sql(f"SET LOCAL {limit} = 0")
