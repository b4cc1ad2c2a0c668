"""What alembic runs: the migrations on a connection that `database` holds open, in its transaction."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
