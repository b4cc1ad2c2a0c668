"""Content negotiation: Accept, Accept-Encoding, If-None-Match."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from movemask.server.api.negotiation import accepts_gzip, is_current, preferred

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
def test_accept_header_chooses_media_type(accept: str, chosen: str) -> None:
    assert preferred(accept, (JSON, LINES)) == chosen


@pytest.mark.parametrize(
    ("accept_encoding", "accepted"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("gzip, deflate, br", True),
        ("br;q=1.0, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0, identity", False),
        ("gzip;q=0.5, identity;q=1", False),
        ("supergzip", False),
        ("x-gzip", False),
        ("identity", False),
        ("*", False),
        ("", False),
    ],
)
def test_gzip_is_accepted_by_name_and_quality(accept_encoding: str, accepted: bool) -> None:
    assert accepts_gzip(accept_encoding) == accepted


@pytest.mark.parametrize("path", ["/", "/openapi.json"])
@pytest.mark.parametrize(("accept_encoding", "coding"), [("gzip;q=0", None), ("supergzip", None), ("GZIP", "gzip")])
def test_response_has_accepted_coding(client: TestClient, path: str, accept_encoding: str, coding: str | None) -> None:
    """A script that asked for no compression saved a file that it could not read."""
    response = client.get(path, headers={"Accept-Encoding": accept_encoding})
    assert response.headers.get("Content-Encoding") == coding
    assert response.headers["Vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    ("if_none_match", "current"),
    [
        ('"a"', True),
        ('W/"a"', True),
        ('"b", W/"a"', True),
        ("*", True),
        ('"b"', False),
        ('"ab"', False),
        ("a", False),
        ("", False),
        ('"*"', False),
    ],
)
def test_if_none_match_names_entity_tags(if_none_match: str, current: bool) -> None:
    assert is_current(if_none_match, '"a"') == current


def test_page_is_sent_again_when_tag_only_contains_its_version(client: TestClient) -> None:
    tag = client.get("/").headers["ETag"]
    assert client.get("/", headers={"If-None-Match": f'"x{tag.strip(chr(34))}y"'}).status_code == 200
