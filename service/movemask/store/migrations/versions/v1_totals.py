"""Version 1: totals and sketches by model and kind, single positions, the worst."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Creates the tables as version 1 did."""
    op.create_table("schema_version", sa.Column("version", sa.Integer, primary_key=True))
    op.create_table(
        "model",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("trained_with_mask", sa.Boolean, nullable=False),
        sa.Column("last_time", sa.Double, nullable=False),
        sa.UniqueConstraint("name", "digest"),
    )
    op.create_table(
        "total",
        sa.Column("model", sa.Integer, sa.ForeignKey("model.id"), primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("unmeasured", sa.Integer, nullable=False),
        sa.Column("sum", sa.Double, nullable=False),
        sa.Column("max", sa.Double, nullable=False),
    )
    op.create_table(
        "sketch",
        sa.Column("model", sa.Integer, sa.ForeignKey("model.id"), primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("bucket", sa.Integer, primary_key=True),
        sa.Column("count", sa.Integer, nullable=False),
    )
    op.create_table(
        "position",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("model", sa.Integer, sa.ForeignKey("model.id"), nullable=False),
        sa.Column("fen", sa.Text, nullable=False),
        *_record_columns(),
    )
    op.create_index("position_time", "position", ["time"])
    op.create_table(
        "worst",
        sa.Column("model", sa.Integer, sa.ForeignKey("model.id"), primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("fen", sa.Text, primary_key=True),
        sa.Column("value", sa.Double, nullable=False),
        *_record_columns(),
    )
    op.create_index("worst_value", "worst", ["model", "kind", "value"])


def _record_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("chess960", sa.Boolean, nullable=False),
        sa.Column("turn", sa.Text, nullable=False),
        sa.Column("legal_moves", sa.Integer, nullable=False),
        sa.Column("raw", sa.Double),
        sa.Column("multiplied", sa.Double, nullable=False),
        sa.Column("served", sa.Double, nullable=False),
        sa.Column("illegal", sa.Text, nullable=False),
    ]
