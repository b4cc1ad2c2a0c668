"""The web service: the app, its routes, bodies and answers, keys, limits, metrics, MCP tools and the page."""
