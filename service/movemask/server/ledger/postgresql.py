"""Connections to PostgreSQL that give up on a silent server."""

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

#: Longest time in seconds to connect, to get a lock, and for a statement. The server ends the last two.
_CONNECT_SECONDS, _LOCK_SECONDS, _STATEMENT_SECONDS = 5, 5, 8
#: Silence in seconds after which the client gives up on the server; longer than a statement may take.
_ANSWER_SECONDS = 10.0
#: Seconds without a statement after which the server ends a transaction: its client is gone or has given up. Until then
#: the transaction's locks hold up the client's next try, which a stopping service makes within 5 seconds.
_IDLE_SECONDS = 3

#: How the operating system notices a server that is gone: 3 probes, 2 seconds apart, after 5 silent seconds; and 10,000
#: ms for the acknowledgement of sent data. Only this ends a wait of a connection `without_limits`.
_TCP = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000}


@dataclass(slots=True)
class Patience:
    """The silence in seconds that the connections of an engine accept. A change applies at once, to waits too."""

    answer_seconds: float


class Connection(psycopg.Connection[Any]):
    """A connection that closes itself and raises OperationalError when the server is silent for too long.

    Neither the server's limits nor TCP's notice a server, or a proxy before it, that accepts data and never answers.
    """

    patience = Patience(math.inf)
    without_limits = False

    def wait(self, gen: PQGen[R], *args: Any, **options: Any) -> R:
        """Runs `gen` to its end. psycopg sends and receives everything by this method, commits included."""
        return super().wait(self._until_silent(gen), *args, **options)

    def _until_silent(self, gen: PQGen[R]) -> Generator[Any, Any, R]:
        """`gen` with a limit. psycopg sends it the socket's state: readable, writable, or 0 every tenth of a second."""
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
    """An engine for a URL, and the `Patience` that limits how long its connections wait for an answer.

    Parameters in the URL override the parameters set here.
    """
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
        pool_pre_ping=True,  # replaces a connection from before an outage
        pool_size=2,  # with the overflow three connections: the recorder's and two readers'
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
    """Allows the statements of this transaction any time, as migrations and large deletions need it."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, Connection)
    driver.without_limits = True
    for limit in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
        connection.exec_driver_sql(f"SET LOCAL {limit} = 0")
