"""How an HTTP request is read, and which route responds to it."""
