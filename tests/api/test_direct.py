"""What would be lost without FastAPI in between: its documentation, its limits and its words for what is wrong."""

from __future__ import annotations

import typing

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from movemask.api.routers import audit, games, leakage, models, operations, policy, sweep


def test_the_direct_routes_are_those_that_the_app_documents() -> None:
    routers = (policy, sweep, games, audit, leakage, models, operations)
    documented = {
        (route.path, typing.get_type_hints(route.endpoint)["asked"], route.endpoint)
        for module in routers
        for route in module.router.routes
        if isinstance(route, APIRoute) and "POST" in (route.methods or ())
    }
    direct = (*policy.DIRECT, *sweep.DIRECT, *games.DIRECT, *audit.DIRECT)
    assert {(route.path, route.body, route.endpoint) for route in direct} == documented


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


def test_other_methods_and_paths_are_the_apps(client: TestClient) -> None:
    assert client.get("/v1/policy").status_code == 405
    assert client.post("/v1/policy/", json={"moves": []}).status_code == 200  # sent on to the path without the slash


def test_the_metrics_know_the_route(client: TestClient) -> None:
    client.post("/v1/policy", json={"fen": "x"})
    assert 'movemask_requests_total{method="POST",route="/v1/policy",status="422"} 1.0' in client.get("/metrics").text
