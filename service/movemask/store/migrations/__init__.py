"""Migrations of the store's tables; alembic runs those that a database lacks."""
