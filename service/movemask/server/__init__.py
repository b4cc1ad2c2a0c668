"""The web service, in rooms of its own, which README.md names."""
