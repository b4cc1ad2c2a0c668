"""Measuring: kinds of leakage, counterfactuals, causes, other people's outputs."""
