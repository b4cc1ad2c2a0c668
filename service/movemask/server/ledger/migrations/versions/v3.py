"""Version 3: the first tables that Alembic knows. Older releases made them without Alembic: nothing is changed here.

New databases are made from `tables.METADATA`; a revision only upgrades the tables of the version before.
"""

from __future__ import annotations

revision = "3"
down_revision = None


def upgrade() -> None:
    """Nothing: the tables exist."""
