"""How the store's tables came to be what they are, step by step; alembic runs what a database lacks."""
