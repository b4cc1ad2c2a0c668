"""Alembic's environment: the revisions run on the connection that `ledger.tables` passes, in its transaction."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
