"""The database of the store, SQLite or PostgreSQL: connections, opening, and recovery after an outage."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
    StatementError,
)

from movemask.errors import StoreError, StoreUnreachable
from movemask.store.tables import bring_up_to_date, is_current, version_of

log = logging.getLogger(__name__)

SQLITE, POSTGRESQL = "sqlite", "postgresql"

_VARIABLE = "MOVEMASK_DATABASE_URL"
_READING = "movemask_reading"

#: Seconds that a write waits for another process's write to SQLite.
_LOCK_SECONDS = 5

#: Seconds that reads are refused at once after the server did not answer, so that many readers do not wait in turn.
_REFUSED_SECONDS = 2.0

#: Seconds that a server may be silent once the service stops.
_HURRIED_SECONDS = 2.0


class Database:
    """A database by its URL, opened on first use. Raises StoreError for an unusable URL."""

    def __init__(self, url: str) -> None:
        try:
            parsed = sa.engine.make_url(url)
        except (ArgumentError, ValueError):  # ValueError: a port that is no number
            shown = re.sub(r":[^:@/]*@", ":***@", url)
            raise StoreError(f"{_VARIABLE}: {shown!r} is not a database URL") from None
        self.shown = parsed.render_as_string(hide_password=True)
        self.dialect = parsed.get_backend_name()
        if self.dialect == SQLITE:
            if parsed.database in (None, "", ":memory:"):
                raise StoreError(f"{_VARIABLE}: {self.shown!r} names no file; write sqlite:///FILE")
            self._file: Path | None = Path(str(parsed.database))
            self._engine = sa.create_engine(parsed)
            sa.event.listen(self._engine, "connect", _set_up_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
        elif self.dialect == POSTGRESQL:
            self._file = None
            from movemask.store import postgresql  # imports psycopg, which takes 0.3 s

            self._engine, self._patience = postgresql.engine(parsed)
        else:
            raise StoreError(f"{_VARIABLE}: {self.shown!r}: sqlite:///FILE and postgresql://… are supported")
        #: What was migrated when the database was opened, in words; None if nothing was.
        self.migrated: str | None = None
        self._name = f"{_VARIABLE}: {self.shown!r}"
        self._lock = threading.Lock()
        self._inode: int | None = None
        self._ready = False
        self._refused: tuple[float, str] = (0.0, "")  # until when reads are refused (monotonic), and why

    @contextmanager
    def writing(self, *, without_limits: bool = False) -> Iterator[sa.Connection]:
        """A transaction that writes; with `without_limits`, its statements may take any time.

        Raises StoreError for a failure that may pass, StoreUnreachable if it is the connection's. A statement that can
        never succeed raises SQLAlchemy's own error.
        """
        with self._store_errors("written"), self._prepared().begin() as connection:
            if without_limits:
                self._lift_limits(connection)
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that only reads. Raises StoreError, and StoreUnreachable as `writing` does."""
        with self._store_errors("read"):
            engine = self._prepared(reading=True)
            with engine.connect().execution_options(**{_READING: True}) as connection:
                yield connection

    def hurry(self) -> None:
        """Ends waits for a silent PostgreSQL after two seconds from now on, also those that have begun."""
        if self.dialect == POSTGRESQL:
            self._patience.answer_seconds = _HURRIED_SECONDS

    def open(self) -> None:
        """Opens the database, and creates or migrates its tables. Raises StoreUnreachable for a server that does not
        answer, StoreError for any other failure."""
        with self._opening():
            self._prepared()

    def version(self) -> int | None:
        """The version of the tables as they are, None if there are none; changes nothing. Raises StoreError as `open`,
        and for tables that cannot be migrated."""
        if self._file is not None and not self._file.exists():
            return None
        with self._opening(), self._engine.connect().execution_options(**{_READING: True}) as connection:
            return version_of(connection, self._name)

    def checkpointed(self) -> bool:
        """Writes SQLite's write-ahead log into the database and empties it; False while others read."""
        with self._store_errors("written"), self._prepared().raw_connection() as connection:
            busy, *_ = connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            unreachable = self.dialect == POSTGRESQL and isinstance(error, OperationalError)
            kind = StoreUnreachable if unreachable else StoreError
            raise kind(f"{self._name} cannot be opened: {self._reason(error)}") from None

    def _copied_aside(self, version: int) -> Path | None:
        """A copy of SQLite's file, made while the caller's transaction keeps others from writing. Raises StoreError."""
        if self._file is None:
            return None
        aside = self._file.absolute().with_name(f"{self._file.name}.version-{version}")
        part = aside.with_name(f"{aside.name}.part")  # a copy that is there is whole
        try:
            with closing(sqlite3.connect(self._file)) as source, closing(sqlite3.connect(part)) as copy:
                source.backup(copy)
            shutil.copymode(self._file, part)
            os.replace(part, aside)
        except (OSError, sqlite3.Error) as error:
            with suppress(OSError):
                part.unlink()
            reason = f"{error}; it takes as much space as the database, which is as it was"
            raise StoreError(f"{self._name} cannot be copied to {aside} before its migration: {reason}") from None
        return aside

    @contextmanager
    def _store_errors(self, done: str) -> Iterator[None]:
        """Turns the driver's errors into StoreError; after one, tables and file are checked again before use."""
        try:
            yield
        except SQLAlchemyError as error:
            self._ready = False
            if _is_damage(error):
                self._set_aside(error)
            if _is_permanent(error):
                raise
            message = f"the audit store cannot be {done}: {self._reason(error)}"
            if not self._is_unreachable(error):
                raise StoreError(message) from error
            self._refused = time.monotonic() + _REFUSED_SECONDS, message
            raise StoreUnreachable(message) from error

    def _is_unreachable(self, error: SQLAlchemyError) -> bool:
        """Whether a connection to the server failed or broke, rather than a statement."""
        silent = isinstance(error, OperationalError) and error.statement is None and _state(error) is None
        broken = isinstance(error, DBAPIError) and error.connection_invalidated
        return self.dialect == POSTGRESQL and (silent or broken)

    def _lift_limits(self, connection: sa.Connection) -> None:
        if self.dialect == POSTGRESQL:
            from movemask.store import postgresql  # imported with the engine

            postgresql.lift_limits(connection)

    def _set_aside(self, error: SQLAlchemyError) -> None:
        """Renames a damaged file of SQLite, so that the next use makes a new one. Only a file that this process has
        used: at the start, one that is no database may be something else."""
        with self._lock:
            if self._file is None or self._inode in (None, -1) or self._inode != self._inode_now():
                return  # another process was first
            self._engine.dispose()
            aside = self._file.with_name(f"{self._file.name}.damaged-{time.time_ns()}")
            try:
                os.rename(self._file, aside)
                for ending in ("-wal", "-shm"):
                    with suppress(FileNotFoundError):
                        os.rename(f"{self._file}{ending}", f"{aside}{ending}")
            except OSError as failure:
                log.error("%s is damaged, and cannot be renamed: %s", self.shown, failure.strerror)
            else:
                log.error(
                    "%s was damaged: %s; it was renamed to %s, and a new one was created",
                    self.shown,
                    error.__cause__,
                    aside,
                )

    def _prepared(self, *, reading: bool = False) -> sa.Engine:
        """The engine, once the tables are up to date. Raises StoreError for tables that cannot be migrated, and for
        `reading` right after the server could not be reached."""
        if self._ready and self._inode == self._inode_now():
            return self._engine
        with self._lock:
            until, message = self._refused
            if reading and time.monotonic() < until:
                raise StoreUnreachable(message)
            if self._inode is not None and self._inode != self._inode_now():
                self._engine.dispose()  # open connections still write to the deleted file
            with self._engine.connect().execution_options(**{_READING: True}) as connection:
                current = is_current(connection, self._name)
            if not current:
                with self._engine.begin() as connection:
                    self._lift_limits(connection)
                    self.migrated = bring_up_to_date(connection, self._name, self._copied_aside)
                if self.migrated:
                    log.info("%s: %s", self.shown, self.migrated)
            self._inode = self._inode_now()
            self._ready = True
        return self._engine

    def _reason(self, error: SQLAlchemyError) -> str:
        """The driver's message without SQLAlchemy's additions, and why the file of SQLite cannot be used."""
        message = str(getattr(error, "orig", None) or error).strip().split("\n", 1)[0]
        obstacle = None
        if self._file is not None and isinstance(error, OperationalError):
            obstacle = _obstacle(self._file.absolute())
        return f"{message}: {obstacle}" if obstacle else message

    def _inode_now(self) -> int | None:
        try:
            return None if self._file is None else os.stat(self._file).st_ino
        except OSError:
            return -1


#: PostgreSQL's error classes that the data is at fault for: a bad value, a constraint, a limit such as the size of an
#: index row, which psycopg reports as operational errors.
_DATA_ERRORS = ("22", "23", "54")


def _state(error: SQLAlchemyError) -> str | None:
    """The code of an error that PostgreSQL reported; None if the error is not the server's."""
    return getattr(getattr(error, "orig", None), "sqlstate", None)


def _is_permanent(error: SQLAlchemyError) -> bool:
    """Whether a statement can never succeed, by its data; a missing table or permission may come back."""
    state = _state(error)
    if isinstance(error, ProgrammingError):
        return not (state and state.startswith("42"))
    if state and state.startswith(_DATA_ERRORS):
        return True
    return isinstance(error, StatementError) and (
        isinstance(error, (DataError, IntegrityError)) or not isinstance(error, DBAPIError)
    )


#: SQLite's SQLITE_CORRUPT and SQLITE_NOTADB.
_DAMAGED = (11, 26)


def _is_damage(error: SQLAlchemyError) -> bool:
    """Whether the content of SQLite's file makes no sense; nothing but another file helps."""
    return getattr(getattr(error, "orig", None), "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def _obstacle(file: Path) -> str | None:
    """Why a SQLite file cannot be opened or written, and what to do about it; None if nothing is found."""
    folder = file.parent
    if not os.path.isdir(folder):
        return f"there is no folder {folder}, or this user may not enter it; make it, or name another file"
    if os.path.isdir(file):
        return f"{file} is a folder; name a file in it"
    if not hasattr(os, "geteuid"):  # Windows
        return None
    user = os.geteuid()
    for path in (folder, file):  # SQLite keeps two more files beside its own
        if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
            if os.statvfs(path).f_flag & os.ST_RDONLY:
                return f"{path} is on a read-only file system; mount a volume there that can be written"
            return f"user {user} cannot read and write {path}; give it to that user (chown -R {user} {path})"
    return None


def _set_up_sqlite(connection: Any, _: object) -> None:
    """WAL, so that readers and a writer do not block each other; and transactions that we begin ourselves."""
    connection.isolation_level = None  # else the driver begins them late, and creating tables would not be in one
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {1000 * _LOCK_SECONDS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA secure_delete = ON")  # positions that are deleted are overwritten
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    """A writer takes the lock at the start, where SQLite waits for it; a later upgrade to it fails at once."""
    reads = connection.get_execution_options().get(_READING, False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
