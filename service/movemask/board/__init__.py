"""Positions, moves and rules: python-chess, and its vectorised twin."""
