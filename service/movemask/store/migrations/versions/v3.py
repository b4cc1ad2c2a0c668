"""The tables of the first version under Alembic: a database of version 3 has them, and is adopted as it is.

New databases get the tables of `tables.METADATA`, so a revision only says how those of the one before become its own.
The next one drops `schema_version`, by which a movemask without Alembic refuses the tables.
"""

from __future__ import annotations

revision = "3"
down_revision = None


def upgrade() -> None:
    """Nothing: the tables are there."""
