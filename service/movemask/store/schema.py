"""The store's tables. A change here needs a migration in `migrations/versions` for databases that exist."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

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

#: Figures by span of time: `tier` is the length of the span in seconds, 0 for all time, `start` its beginning.
CELL = sa.Table(
    "cell",
    METADATA,
    sa.Column("model", sa.ForeignKey(MODEL.c.id), primary_key=True),
    sa.Column("tier", sa.Integer, primary_key=True),
    sa.Column("start", sa.BigInteger, primary_key=True),
    sa.Column("dimension", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("group", sa.Text, primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("unmeasured", sa.BigInteger, nullable=False),
    sa.Column("flips", sa.BigInteger, nullable=False),
    sa.Column("infinite", sa.BigInteger, nullable=False),
    sa.Column("sum", sa.Double, nullable=False),
    sa.Column("max", sa.Double, nullable=False),
    sa.Column("kl", sa.Double, nullable=False),
    sa.Column("sketch", sa.LargeBinary, nullable=False),
)


def _record_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("chess960", sa.Boolean, nullable=False),
        sa.Column("turn", sa.Text, nullable=False),
        sa.Column("legal_moves", sa.Integer, nullable=False),
        sa.Column("raw", sa.Double),
        sa.Column("multiplied", sa.Double, nullable=False),
        sa.Column("served", sa.Double, nullable=False),
        sa.Column("illegal", sa.Text, nullable=False),  # JSON: [[uci, probability, cause], …]
        sa.Column("in_check", sa.Boolean),  # from here on, null in rows of version 1
        sa.Column("phase", sa.Text),
        sa.Column("elo", sa.Double),  # of the side to move; null if none was given
        sa.Column("figures", sa.Text),  # JSON: {kind: [leaked, flipped, kl], …}
        sa.Column("causes", sa.Text),  # JSON: {cause: mass, …}
    ]


POSITION = sa.Table(
    "position",
    METADATA,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("model", sa.ForeignKey(MODEL.c.id), nullable=False),
    sa.Column("fen", sa.Text, nullable=False),
    *_record_columns(),
    sa.Index("position_time", "time"),
)

WORST = sa.Table(
    "worst",
    METADATA,
    sa.Column("model", sa.ForeignKey(MODEL.c.id), primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("fen", sa.Text, primary_key=True),
    sa.Column("value", sa.Double, nullable=False),
    *_record_columns(),
    sa.Index("worst_value", "model", "kind", "value"),
)
