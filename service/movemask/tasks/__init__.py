"""What is done with whole games, files and models."""
