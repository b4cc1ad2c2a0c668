"""Tools for a network: install, import, check, diagnose, calibrate."""
