"""`movemask audit`: whole files of games and positions through networks, into Parquet, JSON and a report."""
