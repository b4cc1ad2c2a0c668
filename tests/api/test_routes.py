"""What would be lost without FastAPI in between: its documentation, its limits and its words for what is wrong."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b'{"fen": ', 400, "body: Expecting value at character 8"),
        (b"\xff\xfe", 400, "body: "),
        (b'{"fen": "x", "fem": 1}', 422, "fem: no such field"),
        (b'{"temperature": NaN}', 422, "temperature: "),
        (b'{"fen": "8/8 w"}', 422, "is cut short"),
        (b'{"moves": [], "model": "none"}', 404, "no model 'none'"),
        ('{"moves": []}'.encode("utf-16"), 200, ""),
    ],
)
def test_what_is_wrong_is_said_as_everywhere(client: TestClient, body: bytes, status: int, said: str) -> None:
    answer = client.post("/v1/policy", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    if status != 200:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert said in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("POST", "/v1/nothing", 404, None),
        ("POST", "/v1/models", 405, "GET, HEAD"),
        ("POST", "/", 405, "GET, HEAD"),
        ("GET", "/v1/policy", 405, "POST"),
        ("PUT", "/v1/policy/batch", 405, "POST"),
        ("POST", "/v1/policy", 415, None),
    ],
)
def test_what_no_route_takes_is_told_before_what_a_body_lacks(
    client: TestClient, method: str, path: str, status: int, allowed: str | None
) -> None:
    answer = client.request(method, path, content=b"x=1", headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert (answer.status_code, answer.headers.get("Allow")) == (status, allowed)
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_other_methods_and_paths_are_the_apps(client: TestClient) -> None:
    assert client.get("/v1/policy").status_code == 405
    assert client.post("/v1/policy/", json={"moves": []}).status_code == 200  # sent on to the path without the slash


def test_the_metrics_know_the_route(client: TestClient) -> None:
    client.post("/v1/policy", json={"fen": "x"})
    assert 'movemask_requests_total{method="POST",route="/v1/policy",status="422"} 1.0' in client.get("/metrics").text
