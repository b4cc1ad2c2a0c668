"""Snapshots of what users see: OpenAPI, --help, problems, settings, columns."""

from __future__ import annotations

import pytest

from tests.snapshots import FOLDER, SNAPSHOTS


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_snapshot_is_current(name: str) -> None:
    current, stored = SNAPSHOTS[name](), (FOLDER / name).read_text()
    assert current == stored, "if on purpose: `python -m tests.snapshots`, and a line in CHANGELOG.md"
