"""Connections to PostgreSQL: options of libpq and of SQLAlchemy's pool, and limits in each transaction.

Nothing belongs to a session, so a pooler in transaction mode may stand before the server.
"""

from __future__ import annotations

import re
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict

#: Longest time in seconds for a lock, for a statement, and without one. The server ends the transaction.
_LOCK_SECONDS, _STATEMENT_SECONDS, _IDLE_SECONDS = 5, 8, 3

#: Age in seconds at which an idle connection is replaced, so that reads follow a switchover too.
_RECYCLE_SECONDS = 10

#: Parameters of libpq that the URL may override. Whatever was sent and is not acknowledged for 3 seconds, and a probe
#: after 2 silent seconds, tell that the server or the way to it is gone.
_OPTIONS = {
    "application_name": "movemask",
    "connect_timeout": 5,
    "target_session_attrs": "read-write",  # of several hosts, the one that can be written
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 2,
    "tcp_user_timeout": 3_000,  # ms
}


def parameters(url: str) -> dict[str, Any]:
    """Returns the parameters of a URL as libpq reads it, several hosts included.

    ValueError if it cannot be read, with the reason if that cannot hold the password.
    """
    try:
        parsed = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        unknown = re.search(r'invalid URI query parameter: "(.*)"', str(error))
        raise ValueError(
            *[f"PostgreSQL takes no parameter {unknown[1]!r}"] if unknown else ()
        ) from None
    if not str(parsed.get("port", "")).replace(",", "0").isdigit() and "port" in parsed:
        raise ValueError("its port is not a number")
    return parsed


def engine(url: str) -> sa.Engine:
    """Returns an engine for a URL; ValueError if it cannot be read."""
    options = {**_OPTIONS, **parameters(url)}
    new_engine = sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(**options, prepare_threshold=None),
        use_native_hstore=False,
        paramstyle="format",  # parameters by place, as in SQLite
        pool_pre_ping=True,  # replaces a connection from before an outage
        pool_recycle=_RECYCLE_SECONDS,
        pool_size=2,  # with the overflow three connections: the recorder's and two readers'
        max_overflow=1,
    )
    sa.event.listen(new_engine, "begin", _limit)
    return new_engine


def _limit(connection: sa.Connection) -> None:
    _set(connection, _LOCK_SECONDS, _STATEMENT_SECONDS, _IDLE_SECONDS)


def lift_limits(connection: sa.Connection) -> None:
    """Allows the statements of this transaction any time, as large deletions need it."""
    _set(connection, 0, 0, 0)


def _set(connection: sa.Connection, lock: int, statement: int, idle: int) -> None:
    """Sets limits, in seconds, for this transaction; 0 for none. As SET LOCAL, in one round trip."""
    connection.exec_driver_sql(
        f"SELECT set_config('lock_timeout', '{lock}s', true), set_config('statement_timeout', '{statement}s', true), "
        f"set_config('idle_in_transaction_session_timeout', '{idle}s', true)"
    )
