"""Leakage of masks: kinds, measuring, causes, and verdicts on other programs' numbers."""
