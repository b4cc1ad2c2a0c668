"""The tables of the store."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

#: The version of these tables. A change here is a new one, and takes a revision in `migrations/versions` that makes
#: it to a database of the one before.
VERSION = 3

METADATA = sa.MetaData()

#: By which a movemask without Alembic knows the tables: the next revision drops it, so that they are refused there.
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
