"""The tables of the ledger, and their version."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from movemask.errors import UnknownLedgerVersion

#: The version of these tables. A change of the tables needs a new one, so that no other movemask writes to them.
VERSION = 1

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
    # uint64, little-endian: bin << 48 | count
    sa.Column("histogram", sa.LargeBinary, nullable=False),
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

#: One row: the version of the tables.
LEDGER_VERSION = sa.Table(
    "ledger_version", METADATA, sa.Column("version", sa.Integer, nullable=False)
)

#: PostgreSQL's advisory lock, with which one process at a time makes the tables.
_LOCK = 0x6D6F7665


def has_tables(connection: sa.Connection, name: str) -> bool:
    """Returns whether the database has the tables of VERSION; False if it has none. `name` is its name in errors.

    Raises UnknownLedgerVersion, which says what to do, for tables of another version.
    """
    names = set(sa.inspect(connection).get_table_names()) & set(METADATA.tables)
    if not names:
        return False
    version = None
    if LEDGER_VERSION.name in names:
        version = connection.execute(sa.select(LEDGER_VERSION.c.version)).scalar()
    if version != VERSION:
        of = "without a version" if version is None else f"of version {version}"
        raise UnknownLedgerVersion(
            f"{name} has tables {of}, and this movemask writes version {VERSION}: move the database away or name "
            "another, and the figures start from zero, or start the movemask that made it"
        )
    return True


def make_tables(connection: sa.Connection, name: str) -> None:
    """Makes the tables in this transaction, if there are none. Raises UnknownLedgerVersion as `has_tables`."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    if not has_tables(connection, name):  # another process may have made them while this one waited
        METADATA.create_all(connection)
        connection.execute(sa.insert(LEDGER_VERSION).values(version=VERSION))
