"""Whole games: reports, sweeps over ratings, forecasts, annotated PGN, and how long a human would think."""
