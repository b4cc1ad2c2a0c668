"""Writes the snapshots anew: `python -m tests.snapshots`."""

from tests.snapshots import FOLDER, SNAPSHOTS

for name, made in SNAPSHOTS.items():
    (FOLDER / name).write_text(made())
