"""Leakage of masks: kinds, measuring, causes, and judging other programs' numbers."""
