"""The running process of `movemask serve`: listening, workers, the guard of connections, the shared tally, logs."""
