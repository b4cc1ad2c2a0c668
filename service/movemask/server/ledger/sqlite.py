"""SQLite's file: connections to it, and why it cannot be used."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

#: The execution option of a transaction that only reads.
READING = "movemask_reading"

#: Seconds that a transaction waits for another one to end.
_LOCK_SECONDS = 5

#: SQLite's SQLITE_CORRUPT and SQLITE_NOTADB.
_DAMAGED = (11, 26)


def engine(url: sa.URL) -> sa.Engine:
    """Returns an engine for the file of a URL. Each transaction opens the file anew, so it finds the file that is there
    now: after a deletion, a restored backup, or a folder that was away."""
    new_engine = sa.create_engine(url, poolclass=sa.NullPool, connect_args={"timeout": 0})
    sa.event.listen(new_engine, "connect", _set_up)
    sa.event.listen(new_engine, "begin", _begin)
    return new_engine


def _set_up(connection: Any, _: object) -> None:
    connection.isolation_level = (
        None  # `_begin` begins transactions; the driver would leave CREATE TABLE out of them
    )
    cursor = connection.cursor()
    # No write-ahead log, which another program may have chosen: its two files would outlive a database that is deleted
    # or replaced alone. A file that another process has open keeps its own until a later transaction.
    with suppress(sqlite3.OperationalError):
        cursor.execute("PRAGMA journal_mode = DELETE")
    cursor.execute(f"PRAGMA busy_timeout = {1000 * _LOCK_SECONDS}")
    cursor.execute("PRAGMA secure_delete = ON")  # deleted positions are overwritten
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    """Begins a transaction. A writer locks the file at once: a lock taken later fails instead of waiting."""
    reads = connection.get_execution_options().get(READING, False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def obstacle(file: Path, error: object) -> str | None:
    """Returns why a file cannot be opened or written, and what to do about it; None if no cause is found."""
    folder = file.parent
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
        return f"{file} is damaged, or another file; move it away, and a new one is made"
    if not os.path.isdir(folder):
        return f"there is no folder {folder}, or this user may not enter it; make it, or name another file"
    if os.path.isdir(file):
        return f"{file} is a folder; name a file in it"
    if not hasattr(os, "geteuid"):  # Windows
        return None
    user = os.geteuid()
    for path in (folder, file):  # the folder too: SQLite makes FILE-journal in it
        if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
            if os.statvfs(path).f_flag & os.ST_RDONLY:
                return f"{path} is on a read-only file system; mount a volume there that can be written"
            return f"user {user} cannot read and write {path}; give it to that user (chown -R {user} {path})"
    return None
