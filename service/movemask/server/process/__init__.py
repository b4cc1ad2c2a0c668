"""Who runs: the service, its supervisor, its workers, where they listen, and signals."""
