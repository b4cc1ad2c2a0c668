"""`movemask audit`: evaluates whole files of games and positions into Parquet, JSON and an HTML report."""
