"""Positions, moves and games, by python-chess."""
