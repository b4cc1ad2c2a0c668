"""Trials of the service by hostile, greedy and broken clients: `scripts/test-hostile`."""
