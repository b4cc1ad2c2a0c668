"""Keeping: the recorder, sketches, cells, the tables, and the figures read from them."""
