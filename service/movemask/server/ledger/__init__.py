"""The audit's database: the recorder writes to it, the reader reads it; cells hold the figures."""
