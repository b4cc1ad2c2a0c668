"""GET /v1/policy and other cached responses: ETag, Cache-Control, 304."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.conftest import Serve
from tests.server.asking import asked, refused

CASTLING = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"


def by_link(client: TestClient, **parameters: Any) -> Any:
    response = client.get("/v1/policy", params=parameters)
    assert response.status_code == 200, response.text
    return response.json()


def test_get_policy_equals_post(shipped: TestClient) -> None:
    for link in ({"fen": "startpos"}, {"fen": CASTLING, "elo": 1300}, {"fen": CASTLING, "chess960": True}):
        posted = asked(shipped, **link)
        del posted["timing"]
        assert by_link(shipped, **link) == posted
    assert by_link(shipped, fen=CASTLING, chess960=True)["moves"] != by_link(shipped, fen=CASTLING)["moves"]
    assert by_link(shipped, fen="startpos", model="movemask-8")["model"]["name"] == "movemask-8"


def test_get_policy_is_private_for_a_minute(client: TestClient) -> None:
    first, again = (client.get("/v1/policy?fen=startpos") for _ in range(2))
    assert first.headers["Cache-Control"] == "private, max-age=60"
    assert first.headers["ETag"] == again.headers["ETag"]
    assert first.content == again.content
    other = client.get("/v1/policy", params={"fen": CASTLING})
    assert other.headers["ETag"] != first.headers["ETag"]
    assert client.head("/v1/policy?fen=startpos").headers["ETag"] == first.headers["ETag"]


@pytest.mark.parametrize("path", ["/v1/policy?fen=startpos", "/v1/models", "/openapi.json"])
def test_current_etag_is_304(client: TestClient, path: str) -> None:
    first = client.get(path)
    assert first.status_code == 200
    tag = first.headers["ETag"]
    for known in (tag, f'"other", {tag}', tag.removeprefix("W/"), "*"):
        unchanged = client.get(path, headers={"If-None-Match": known})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert unchanged.headers["ETag"] == tag
        assert unchanged.headers["Cache-Control"] == first.headers["Cache-Control"]
    for unknown in ('"other"', "", tag[:-2] + '"'):
        changed = client.get(path, headers={"If-None-Match": unknown})
        assert (changed.status_code, changed.content) == (200, first.content)


def test_errors_are_not_cached(client: TestClient) -> None:
    for query, name in (
        ("", "invalid-request"),
        ("?fen=x", "invalid-fen"),
        ("?fen=startpos&elo=nan", "invalid-request"),
    ):
        response = client.get(f"/v1/policy{query}")
        refused(response, 422, name)
        assert response.headers["Cache-Control"] == "no-store"
        assert "ETag" not in response.headers
    refused(client.get("/v1/policy?fen=startpos&model=none"), 404, "unknown-model", "none")


def test_304_counts_against_rate(serve: Serve) -> None:
    client = serve(client_rate=0.001, client_burst=2)
    first = client.get("/v1/policy?fen=startpos")
    assert first.headers["RateLimit"].startswith('"positions";r=1')
    unchanged = client.get("/v1/policy?fen=startpos", headers={"If-None-Match": first.headers["ETag"]})
    assert unchanged.status_code == 304
    refused(client.get("/v1/policy?fen=startpos"), 429, "rate-limited")
