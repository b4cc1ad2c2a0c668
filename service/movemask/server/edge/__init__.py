"""Who may ask, and how much: connections, the middleware, keys, rates, limits."""
