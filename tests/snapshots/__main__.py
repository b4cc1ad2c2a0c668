"""Writes the snapshots anew: `python -m tests.snapshots`."""

from tests.snapshots import FOLDER, PAGES, SNAPSHOTS

for name, write in (SNAPSHOTS | PAGES).items():
    (FOLDER / name).write_text(write())
