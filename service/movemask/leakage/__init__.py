"""Measuring: kinds of leakage, causes, other people's outputs."""
