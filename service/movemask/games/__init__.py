"""What a network says of whole games: reports, sweeps over ratings, forecasts, annotated PGN."""
