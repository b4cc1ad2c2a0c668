"""Work on whole games, files and models."""
