"""Adds `writer`, by which no batch is written twice; drops `schema_version`, which only versions before Alembic read.

Without `schema_version`, a movemask from before Alembic refuses the tables instead of writing to newer ones.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    op.create_table(
        "writer",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("batch", sa.Text, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
    )
    op.drop_table("schema_version")
