"""Who runs: the service, its supervisor, its workers, where they listen, how a running one is found, and signals."""
