"""Whole games: reports, sweeps over ratings, forecasts, annotated PGN, and human thinking times."""
