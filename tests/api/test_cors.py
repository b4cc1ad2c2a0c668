"""What other pages would lose: the right to call the service where it is given, and nothing else."""

from __future__ import annotations

import pytest

from movemask.errors import SettingsError
from movemask.settings import Settings
from tests.conftest import Serve

PAGE, STRANGER = "https://example.org", "https://example.com"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,authorization"}


def test_without_the_setting_no_page_may_call(serve: Serve) -> None:
    client = serve()
    answer = client.post("/v1/policy", json={"moves": []}, headers={"Origin": PAGE})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert client.options("/v1/policy", headers={"Origin": PAGE, **PREFLIGHT}).status_code == 405


@pytest.mark.parametrize(
    ("origins", "allowed"), [(f"{PAGE},http://localhost:5500", PAGE), ("*", "*"), ("http://[::1]:80,*", None)]
)
def test_the_named_origins_may_and_others_may_not(serve: Serve, origins: str, allowed: str | None) -> None:
    if allowed is None:
        with pytest.raises(SettingsError, match="MOVEMASK_CORS_ORIGINS"):
            Settings.read(cors_origins=origins)
        return
    client = serve(cors_origins=origins)
    asked = client.options("/v1/policy", headers={"Origin": PAGE, **PREFLIGHT})
    assert asked.status_code == 200
    assert asked.headers["Access-Control-Allow-Origin"] == allowed
    assert "POST" in asked.headers["Access-Control-Allow-Methods"]
    assert "authorization" in asked.headers["Access-Control-Allow-Headers"].lower()
    for body, status in (({"moves": []}, 200), ({"fen": "x"}, 422)):  # a page can read problems too
        answer = client.post("/v1/policy", json=body, headers={"Origin": PAGE})
        assert (answer.status_code, answer.headers["Access-Control-Allow-Origin"]) == (status, allowed)
        assert "X-Request-ID" in answer.headers["Access-Control-Expose-Headers"]
        assert "Access-Control-Allow-Credentials" not in answer.headers
    if allowed != "*":
        stranger = client.post("/v1/policy", json={"moves": []}, headers={"Origin": STRANGER})
        assert "Access-Control-Allow-Origin" not in stranger.headers
        assert client.options("/v1/policy", headers={"Origin": STRANGER, **PREFLIGHT}).status_code == 400


def test_a_page_is_asked_for_its_key_and_may_read_the_answer(serve: Serve) -> None:
    client = serve(cors_origins=PAGE, api_keys="some-key-of-nobody-0123456789")
    assert client.options("/v1/policy", headers={"Origin": PAGE, **PREFLIGHT}).status_code == 200
    refused = client.post("/v1/policy", json={"moves": []}, headers={"Origin": PAGE})
    assert (refused.status_code, refused.headers["Access-Control-Allow-Origin"]) == (401, PAGE)


@pytest.mark.parametrize("origins", ["example.org", "https://example.org/", "https://example.org/page", "https://a, b"])
def test_what_is_no_origin_is_refused_by_name(origins: str) -> None:
    with pytest.raises(SettingsError, match="MOVEMASK_CORS_ORIGINS"):
        Settings.read(cors_origins=origins)
