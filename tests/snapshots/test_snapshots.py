"""What a user's script would lose: a field, flag, metric or setting that changed without a word."""

from __future__ import annotations

import pytest

from tests.snapshots import FOLDER, SNAPSHOTS


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_what_users_see_changes_on_purpose_only(name: str) -> None:
    made, kept = SNAPSHOTS[name](), (FOLDER / name).read_text()
    assert made == kept, "if on purpose: `python -m tests.snapshots`, and a line in CHANGELOG.md"
