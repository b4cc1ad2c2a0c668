"""The ledger's database: opening, transactions, and recovery after a failure."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DataError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
    StatementError,
)

from movemask.errors import LedgerError, LedgerUnreachable
from movemask.server.ledger import sqlite
from movemask.server.ledger.tables import has_tables, make_tables

SQLITE, POSTGRESQL = "sqlite", "postgresql"

_VARIABLE = "MOVEMASK_DATABASE_URL"

#: After a server did not answer, reads fail at once for this many seconds, so that waiting readers do not each try.
_REFUSED_SECONDS = 2.0


class Database:
    """A database by its URL, opened on first use. Raises LedgerError for an unusable URL.

    shown : the URL without its password
    dialect : SQLITE or POSTGRESQL
    """

    def __init__(self, url: str) -> None:
        self.shown = re.sub(r":[^:@/]*@", ":***@", url)
        self._file: Path | None = None
        scheme = url.partition(":")[0]
        try:
            if scheme == "sqlite":
                parsed = sa.engine.make_url(url)
                if parsed.database in (None, "", ":memory:"):
                    raise LedgerError(
                        f"{_VARIABLE}: {self.shown!r} names no file; write sqlite:///FILE"
                    )
                if parsed.query:
                    raise ValueError(f"SQLite takes no parameter {next(iter(parsed.query))!r}")
                self.dialect, self._file = SQLITE, Path(str(parsed.database))
                self._engine = sqlite.engine(parsed)
            elif scheme in ("postgresql", "postgres"):
                from movemask.server.ledger import postgresql  # imports psycopg, which takes 0.3 s

                self.dialect, self._engine = POSTGRESQL, postgresql.engine(url)
            else:
                raise ValueError
        except (ArgumentError, ValueError) as error:
            example = (
                f"sqlite:///{self.shown}"
                if re.fullmatch(r"[\w./-]+", url)
                else "sqlite:///FILE or postgresql://…"
            )
            why = f": {error}" if type(error) is ValueError and error.args else ""
            raise LedgerError(
                f"{_VARIABLE}: {self.shown!r} is not a database URL{why}; write {example}"
            ) from None
        self._name = f"{_VARIABLE}: {self.shown!r}"
        self._lock = threading.Lock()
        self._ready = False  # whether the tables are there, as far as is known
        self._refused = 0.0, ""  # until when reads fail (time.monotonic), and why

    @contextmanager
    def writing(self, *, without_limits: bool = False) -> Iterator[sa.Connection]:
        """Yields a transaction that writes.

        With `without_limits`, PostgreSQL may take any time for its statements.

        Raises LedgerError for a failure that may pass, LedgerUnreachable if the connection failed.
        A statement that can never succeed raises SQLAlchemy's own error.
        """
        with self._ledger_errors("written"), self._prepare().begin() as connection:
            if without_limits:
                self._lift_limits(connection)
            with _replace_after_errors(connection):
                yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Yields a transaction that only reads.

        Raises LedgerError; LedgerUnreachable if the connection failed.
        """
        with self._ledger_errors("read"):
            engine = self._prepare(reading=True)
            connected = engine.connect().execution_options(**{sqlite.READING: True})
            with connected as connection, _replace_after_errors(connection):
                yield connection

    def open(self) -> None:
        """Opens the database, and makes its tables if there are none.

        Raises LedgerUnreachable if a server does not answer, UnknownLedgerVersion for tables of another version,
        LedgerError for any other failure.
        """
        with self._opening():
            self._prepare()

    def close(self) -> None:
        """Closes the connections that are not in use."""
        self._engine.dispose()

    def _prepare(self, *, reading: bool = False) -> sa.Engine:
        """Returns the engine, once the tables are there.

        Raises UnknownLedgerVersion, and LedgerUnreachable for `reading` if a server has just not answered.
        """
        if self._ready:
            return self._engine
        with self._lock:
            refused_until, reason = self._refused
            if reading and time.monotonic() < refused_until:
                raise LedgerUnreachable(f"the ledger cannot be read: {reason}")
            with self._engine.connect().execution_options(**{sqlite.READING: True}) as connection:
                tables_exist = has_tables(connection, self._name)
            if not tables_exist:
                with self._engine.begin() as connection:
                    make_tables(connection, self._name)
            self._ready = True
        return self._engine

    def _lift_limits(self, connection: sa.Connection) -> None:
        if self.dialect == POSTGRESQL:
            from movemask.server.ledger import postgresql  # imported already, by `__init__`

            postgresql.lift_limits(connection)

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Turns the driver's errors into LedgerError."""
        try:
            yield
        except SQLAlchemyError as error:
            message = f"{self._name} cannot be opened: {self._reason(error)}"
            if self.dialect == POSTGRESQL and isinstance(error, OperationalError):
                raise LedgerUnreachable(message) from None
            raise LedgerError(message) from None

    @contextmanager
    def _ledger_errors(self, done: str) -> Iterator[None]:
        """Turns the driver's errors into LedgerError. The next use checks the tables."""
        try:
            yield
        except SQLAlchemyError as error:
            self._ready = False
            if _is_permanent(error):
                raise
            reason = self._reason(error)
            message = f"the ledger cannot be {done}: {reason}"
            if not self._is_unreachable(error):
                raise LedgerError(message) from error
            self._refused = time.monotonic() + _REFUSED_SECONDS, reason
            raise LedgerUnreachable(message) from error

    def _is_unreachable(self, error: SQLAlchemyError) -> bool:
        """Returns whether a connection to a server could not be made, or broke."""
        not_made = (
            isinstance(error, OperationalError)
            and error.statement is None
            and _state(error) is None
        )
        broken = isinstance(error, DBAPIError) and error.connection_invalidated
        return self.dialect == POSTGRESQL and (not_made or broken)

    def _reason(self, error: SQLAlchemyError) -> str:
        """Returns the driver's message without SQLAlchemy's additions, and what is wrong with SQLite's file."""
        message = str(getattr(error, "orig", None) or error).strip().split("\n", 1)[0]
        obstacle = None
        if self._file is not None and isinstance(error, DatabaseError):
            obstacle = sqlite.obstacle(self._file.absolute(), error.orig)
        return f"{message}: {obstacle}" if obstacle else message


#: PostgreSQL's classes of errors that lie in the data: a bad value, a constraint, a limit such as the size of an index
#: row. psycopg reports the last as an operational error.
_DATA_ERRORS = ("22", "23", "54")


def _state(error: SQLAlchemyError) -> str | None:
    """Returns PostgreSQL's code of an error; None if the server did not report it."""
    return getattr(getattr(error, "orig", None), "sqlstate", None)


@contextmanager
def _replace_after_errors(connection: sa.Connection) -> Iterator[None]:
    """Closes the connection if a statement fails: after a switchover, the next is to the server that can be written."""
    try:
        yield
    except SQLAlchemyError:
        connection.invalidate()
        raise


def _is_permanent(error: SQLAlchemyError) -> bool:
    """Returns whether a statement can never succeed because of its data.

    A missing table or permission may come back.
    """
    state = _state(error)
    if isinstance(error, ProgrammingError):
        return not (state and state.startswith("42"))
    if state and state.startswith(_DATA_ERRORS):
        return True
    return isinstance(error, StatementError) and (
        isinstance(error, (DataError, IntegrityError)) or not isinstance(error, DBAPIError)
    )
