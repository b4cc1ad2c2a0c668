"""Networks: sessions, contracts and their check, the registry."""
