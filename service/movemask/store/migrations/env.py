"""alembic's environment: runs the migrations on the connection that `database` passes, in its transaction."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
