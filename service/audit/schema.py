"""The store's tables, and the engine that opens a database with them in place."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from service.errors import StoreError

#: Raised with each change of the tables; a database of another version is refused, never guessed at.
VERSION = 1

#: Execution option of a connection that only reads.
READING = "movemask_reading"

_METADATA = sa.MetaData()

SCHEMA = sa.Table("schema_version", _METADATA, sa.Column("version", sa.Integer, primary_key=True))

MODEL = sa.Table(
    "model",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("trained_with_mask", sa.Boolean, nullable=False),
    sa.Column("last_time", sa.Float, nullable=False),
    sa.UniqueConstraint("name", "digest"),
)

TOTAL = sa.Table(
    "total",
    _METADATA,
    sa.Column("model", sa.ForeignKey(MODEL.c.id), primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("unmeasured", sa.Integer, nullable=False),
    sa.Column("sum", sa.Float, nullable=False),
    sa.Column("max", sa.Float, nullable=False),
)

SKETCH = sa.Table(
    "sketch",
    _METADATA,
    sa.Column("model", sa.ForeignKey(MODEL.c.id), primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("bucket", sa.Integer, primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)


def _what_is_kept() -> list[sa.Column[Any]]:
    return [
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("chess960", sa.Boolean, nullable=False),
        sa.Column("turn", sa.Text, nullable=False),
        sa.Column("legal_moves", sa.Integer, nullable=False),
        sa.Column("raw", sa.Float),
        sa.Column("multiplied", sa.Float, nullable=False),
        sa.Column("served", sa.Float, nullable=False),
        sa.Column("illegal", sa.Text, nullable=False),  # JSON: [[uci, probability], …]
    ]


POSITION = sa.Table(
    "position",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("model", sa.ForeignKey(MODEL.c.id), nullable=False),
    sa.Column("fen", sa.Text, nullable=False),
    *_what_is_kept(),
    sa.Index("position_time", "time"),
)

WORST = sa.Table(
    "worst",
    _METADATA,
    sa.Column("model", sa.ForeignKey(MODEL.c.id), primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("fen", sa.Text, primary_key=True),
    sa.Column("value", sa.Float, nullable=False),
    *_what_is_kept(),
    sa.Index("worst_value", "model", "kind", "value"),
)


def prepared(url: str) -> sa.Engine:
    """An engine on a database that holds the tables; raises StoreError that names the URL."""
    try:
        parsed = sa.engine.make_url(url)
    except ArgumentError:
        raise StoreError(f"MOVEMASK_DATABASE_URL: {url!r} is not a database URL") from None
    shown = parsed.render_as_string(hide_password=True)
    if parsed.get_backend_name() != "sqlite":
        raise StoreError(f"MOVEMASK_DATABASE_URL: {shown!r}: only sqlite:///FILE is supported")
    if parsed.database in (None, "", ":memory:"):
        raise StoreError(f"MOVEMASK_DATABASE_URL: {shown!r} names no file; write sqlite:///FILE")
    engine = sa.create_engine(parsed)
    sa.event.listen(engine, "connect", _set_up_connection)
    sa.event.listen(engine, "begin", _begin)
    try:
        with engine.begin() as connection:
            _METADATA.create_all(connection)
            version = connection.execute(sa.select(sa.func.max(SCHEMA.c.version))).scalar()
            if version is None:
                connection.execute(sa.insert(SCHEMA).values(version=VERSION))
    except SQLAlchemyError as error:
        engine.dispose()
        reason = str(getattr(error, "orig", None) or error).split("\n", 1)[0]
        raise StoreError(f"MOVEMASK_DATABASE_URL: {shown!r} cannot be opened: {reason}") from None
    if version not in (None, VERSION):
        engine.dispose()
        raise StoreError(f"MOVEMASK_DATABASE_URL: {shown!r} has tables of version {version}, this service {VERSION}")
    return engine


def _set_up_connection(connection: Any, _: object) -> None:
    """WAL, so that readers and a writer do not wait for each other; and transactions that we begin ourselves."""
    connection.isolation_level = None  # else the driver begins them late, and create_all would not be in one
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout = 5000")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    """A writer takes the lock at the start, where waiting for it works; a lock asked for later fails at once."""
    reads = connection.get_execution_options().get(READING, False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
