"""Networks: sessions, contracts and their check, the registry, the queue and the cache."""
