"""The routes, a module for each matter."""
