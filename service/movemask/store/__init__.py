"""Keeping: the recorder, the tables and what is written to them, cells of figures, and what is read."""
