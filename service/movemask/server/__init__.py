"""The web service. docs/architecture.md lists its packages."""
