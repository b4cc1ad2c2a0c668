"""The tables of the ledger, their version, and migrations from older versions by Alembic.

A revision is a file in `migrations/versions`, named after the version that it makes. Alembic is imported only if there
is something to migrate, because the import takes a quarter of a second and 11 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from movemask.errors import LedgerError

#: The version of these tables. A change of the tables needs a new version, and a revision in `migrations/versions` that
#: makes the same change to an existing database.
VERSION = 4

METADATA = sa.MetaData()

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

#: Figures by span of time: `tier` is the length of the span in seconds (0: all time), `start` its first second.
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

#: The id of each writer's last batch. A writer that got no reply to its COMMIT writes the batch again; if the first try
#: succeeded, it finds the id here and adds nothing. `time` is that of the last write, in seconds since 1970.
WRITER = sa.Table(
    "writer",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("batch", sa.Text, nullable=False),
    sa.Column("time", sa.Double, nullable=False),
)

#: The first version that is a revision. Tables of this version may be from before Alembic: their version is in
#: `schema_version`, a table that the next version drops.
FIRST = 3
_BEFORE_ALEMBIC = sa.Table("schema_version", sa.MetaData(), sa.Column("version", sa.Integer, nullable=False))

#: PostgreSQL's advisory lock, with which one process at a time makes or migrates the tables.
_LOCK = 0x6D6F7665

_ALEMBIC = sa.Table(
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),  # as Alembic makes it
)


def version_of(connection: sa.Connection, shown: str) -> int | None:
    """The version of the tables, None if there are none. `shown` names the database in errors.

    Raises LedgerError, which says what to do, for a version that cannot be migrated to VERSION.
    """
    tables = set(sa.inspect(connection).get_table_names())
    if not tables & {*METADATA.tables, _BEFORE_ALEMBIC.name, _ALEMBIC.name}:
        return None
    version = None
    for column in (_BEFORE_ALEMBIC.c.version, _ALEMBIC.c.version_num):  # Alembic's counts if both exist
        if column.table.name in tables:
            version = connection.execute(sa.select(sa.func.max(column))).scalar()
    number = int(str(version)) if str(version).isdecimal() else 0
    if number > VERSION:
        raise LedgerError(
            f"{shown} has tables of version {number}, but this movemask uses {VERSION}. Start the newer movemask that "
            "migrated them, or restore an older backup (docs/operations.md#upgrades-backup-and-restore)"
        )
    if number < FIRST:
        raise LedgerError(
            f"{shown} has tables of version {version}, and this movemask can migrate only those of {FIRST} and "
            "later. Name another database, or move this one away; the figures then start from zero"
        )
    return number


def is_current(connection: sa.Connection, shown: str) -> bool:
    """Whether the tables are of VERSION and known to Alembic. Raises LedgerError as `version_of`."""
    return version_of(connection, shown) == VERSION and sa.inspect(connection).has_table(_ALEMBIC.name)


def bring_up_to_date(connection: sa.Connection, shown: str, copied_aside: Callable[[int], Path | None]) -> str | None:
    """Makes or migrates the tables in this transaction. Returns what was migrated, in words; None if nothing was.

    `copied_aside` copies the database before its migration and returns the copy's place. Raises LedgerError.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    version = version_of(connection, shown)
    if version is None:
        METADATA.create_all(connection)
        _ALEMBIC.create(connection)
        connection.execute(sa.insert(_ALEMBIC).values(version_num=str(VERSION)))
        return None
    if is_current(connection, shown):  # another process migrated them while this one waited
        return None
    aside = copied_aside(version) if version < VERSION else None
    copy = f"; a copy made before the migration is at {aside}" if aside else ""
    try:
        _upgrade(connection)
    except Exception as error:
        reason = str(getattr(error, "orig", None) or error).strip().split("\n", 1)[0]
        raise LedgerError(
            f"{shown} cannot be migrated from version {version} to {VERSION}: {reason}; it is unchanged{copy}"
        ) from error
    return f"migrated from version {version} to {VERSION}{copy}" if version < VERSION else None


def _upgrade(connection: sa.Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "movemask.server.ledger:migrations")
    if not sa.inspect(connection).has_table(_ALEMBIC.name):
        command.stamp(config, str(FIRST))
    command.upgrade(config, "head")
