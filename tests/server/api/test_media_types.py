"""What an integrator would lose: the format that the client's Accept header asks for."""

from __future__ import annotations

import pytest

from movemask.server.api.media_types import preferred

JSON, LINES = "application/json", "application/x-ndjson"


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("text/html", JSON),  # rather JSON than no answer
        (LINES, LINES),
        ("APPLICATION/X-NDJSON", LINES),
        (f"{LINES}, {JSON}", LINES),
        (f"{JSON}, {LINES}", JSON),
        (f"{LINES};q=0, {JSON}", JSON),
        (f"{LINES};q=0", JSON),
        (f"{JSON};q=1.0, {LINES};q=0.1", JSON),
        (f"{JSON};q=0.5, {LINES};charset=utf-8;q=0.9", LINES),
        (f"{LINES}, */*;q=0.1", LINES),
        (f"{LINES};q=much", JSON),
        (f"*/*, {LINES};q=0.1", JSON),
        (f"{LINES};q=0.1, application/*", JSON),
        (f"*/*, {LINES}", LINES),
        (f"{JSON};q=0, */*", LINES),
        ("text/*", JSON),
    ],
)
def test_the_clients_accept_header_chooses(accept: str, chosen: str) -> None:
    assert preferred(accept, (JSON, LINES)) == chosen
