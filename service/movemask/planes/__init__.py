"""What networks are fed."""
