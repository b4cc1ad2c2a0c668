"""The web: FastAPI app, routers, schemas, the status table, metrics."""
