"""The database of the store, SQLite or PostgreSQL: tables, connections, and recovery after an outage."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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

log = logging.getLogger(__name__)

SQLITE, POSTGRESQL = "sqlite", "postgresql"

_VARIABLE = "MOVEMASK_DATABASE_URL"
_READING = "movemask_reading"
_CREATING = 0x6D6F7665  # PostgreSQL's advisory lock: one process at a time makes the tables

#: Seconds that a connection, a lock and a statement may take before the database counts as failed.
_CONNECT_SECONDS, _LOCK_SECONDS, _STATEMENT_SECONDS = 5, 5, 30

#: The version of these tables; 1 and 2 were those of earlier services. A change here is a new one: a database of
#: another is refused, with what to do.
VERSION = 3

METADATA = sa.MetaData()

SCHEMA_VERSION = sa.Table("schema_version", METADATA, sa.Column("version", sa.Integer, nullable=False))

MODEL = sa.Table(
    "model",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("trained_with_mask", sa.Boolean, nullable=False),
    sa.Column("last_time", sa.Double, nullable=False),
    sa.UniqueConstraint("name", "digest"),
)

#: Figures by span of time: `tier` is the length of the span in seconds, 0 for all time, `start` its beginning.
CELL = sa.Table(
    "cell",
    METADATA,
    sa.Column("model", sa.ForeignKey(MODEL.c.id), nullable=False),
    sa.Column("tier", sa.Integer, nullable=False),
    sa.Column("start", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("dimension", sa.Text, nullable=False),
    sa.Column("group", sa.Text, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("unmeasured", sa.BigInteger, nullable=False),
    sa.Column("flips", sa.BigInteger, nullable=False),
    sa.Column("infinite", sa.BigInteger, nullable=False),
    sa.Column("sum", sa.Double, nullable=False),
    sa.Column("kl", sa.Double, nullable=False),
    sa.Column("max", sa.Double, nullable=False),
    sa.Column("histogram", sa.LargeBinary, nullable=False),  # uint64, little-endian: bin << 48 | count
    sa.PrimaryKeyConstraint("model", "tier", "start", "dimension", "kind", "group"),
)


def _position_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("model", sa.ForeignKey(MODEL.c.id), nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("fen", sa.Text, nullable=False),
        sa.Column("chess960", sa.Boolean, nullable=False),
        sa.Column("turn", sa.Text, nullable=False),
        sa.Column("in_check", sa.Boolean, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("legal_moves", sa.Integer, nullable=False),
        sa.Column("elo", sa.Double),  # of the side to move; null if none was given
        # JSON: [{kind: [leaked, flipped, kl], …}, {cause: mass, …}, [[uci, probability, cause], …]]
        sa.Column("leakage", sa.Text, nullable=False),
    ]


POSITION = sa.Table(
    "position",
    METADATA,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    *_position_columns(),
    sa.Index("position_time", "time"),
)

WORST = sa.Table(
    "worst",
    METADATA,
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("value", sa.Double, nullable=False),
    *_position_columns(),
    sa.PrimaryKeyConstraint("model", "kind", "fen"),
    sa.Index("worst_value", "model", "kind", "value"),
)


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
            options = f"-c lock_timeout={_LOCK_SECONDS}s -c statement_timeout={_STATEMENT_SECONDS}s"
            self._engine = sa.create_engine(
                parsed.set(drivername="postgresql+psycopg"),
                paramstyle="format",  # parameters by place, as in SQLite
                pool_pre_ping=True,  # a server that came back is a new server
                pool_size=2,
                max_overflow=6,
                connect_args={"connect_timeout": _CONNECT_SECONDS, "options": options, "application_name": "movemask"},
            )
        else:
            raise StoreError(f"{_VARIABLE}: {self.shown!r}: sqlite:///FILE and postgresql://… are supported")
        self._lock = threading.Lock()
        self._inode: int | None = None
        self._ready = False

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that writes. Raises StoreError for a failure that may pass; a statement that can never succeed
        raises SQLAlchemy's own error."""
        with self._store_errors("written"), self._prepared().begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that only reads. Raises StoreError."""
        with self._store_errors("read"), self._prepared().connect().execution_options(**{_READING: True}) as connection:
            yield connection

    def open(self) -> None:
        """Opens the database and creates its tables. Raises StoreUnreachable for a server that does not answer,
        StoreError for any other failure."""
        try:
            self._prepared()
        except SQLAlchemyError as error:
            unreachable = self.dialect == POSTGRESQL and isinstance(error, OperationalError)
            kind = StoreUnreachable if unreachable else StoreError
            raise kind(f"{_VARIABLE}: {self.shown!r} cannot be opened: {self._reason(error)}") from None

    def checkpointed(self) -> bool:
        """Writes SQLite's write-ahead log into the database and empties it; False while others read."""
        with self._store_errors("written"), self._prepared().raw_connection() as connection:
            busy, *_ = connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def close(self) -> None:
        self._engine.dispose()

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
            raise StoreError(f"the audit store cannot be {done}: {self._reason(error)}") from error

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
                log.error("%s is damaged, and cannot be set aside: %s", self.shown, failure.strerror)
            else:
                log.error("%s was damaged: %s; it is now %s, and a new one begins", self.shown, error.__cause__, aside)

    def _prepared(self) -> sa.Engine:
        """The engine, once the tables exist. Raises StoreError for tables of another version."""
        if self._ready and self._inode == self._inode_now():
            return self._engine
        with self._lock:
            if self._inode is not None and self._inode != self._inode_now():
                self._engine.dispose()  # open connections still write to the deleted file
            with self._engine.connect().execution_options(**{_READING: True}) as connection:
                version = _version(connection)
            if version is None:
                with self._engine.begin() as connection:
                    version = _created(connection)
            if version != VERSION:
                raise StoreError(
                    f"{_VARIABLE}: {self.shown!r} has tables of version {version}, this movemask of {VERSION}: name "
                    "another database, or move this one away; the figures then start anew"
                )
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


def _version(connection: sa.Connection) -> int | None:
    """The version of the existing tables, None if there are none. Version 2 did not keep it where this one does."""
    tables = sa.inspect(connection).get_table_names()
    if SCHEMA_VERSION.name in tables:
        return connection.execute(sa.select(sa.func.max(SCHEMA_VERSION.c.version))).scalar()
    return 2 if set(tables) & set(METADATA.tables) else None


def _created(connection: sa.Connection) -> int | None:
    """The version of the tables, which are made in this transaction unless another process was first."""
    if connection.dialect.name == POSTGRESQL:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATING)))
    if _version(connection) is None:
        METADATA.create_all(connection)
        connection.execute(sa.insert(SCHEMA_VERSION).values(version=VERSION))
    return _version(connection)


#: PostgreSQL's error classes that the data is at fault for: a bad value, a constraint, a limit such as the size of an
#: index row, which psycopg reports as operational errors.
_DATA_ERRORS = ("22", "23", "54")


def _is_permanent(error: SQLAlchemyError) -> bool:
    """Whether a statement can never succeed, by its data; a missing table or permission may come back."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
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
