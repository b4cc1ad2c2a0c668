"""Traits of routes: the table by method and path, and what an app declares."""

from __future__ import annotations

from typing import Any

import pytest

from movemask.server.edge.traits import OTHER, Table, Traits
from tests.conftest import Serve

POLICY, LINK, MODEL = (
    Traits(path="/v1/policy"),
    Traits(path="/v1/policy", cached=True),
    Traits(path="/v1/models/{name}"),
)


@pytest.fixture
def table() -> Table:
    table = Table()
    for methods, traits in (({"POST"}, POLICY), ({"GET"}, LINK), ({"GET"}, MODEL)):
        table.add(methods, traits)
    return table


@pytest.mark.parametrize(
    ("method", "path", "traits"),
    [
        ("POST", "/v1/policy", POLICY),
        ("GET", "/v1/policy", LINK),
        ("GET", "/v1/models/a", MODEL),
        ("GET", "/v1/models/{name}", MODEL),
        ("OPTIONS", "/v1/policy", POLICY),
        ("GET", "/v1/models/a/b", OTHER),
        ("GET", "/v1/models/", OTHER),
        ("GET", "/v1/policy/", OTHER),
        ("GET", "", OTHER),
    ],
)
def test_table_finds_traits(table: Table, method: str, path: str, traits: Traits) -> None:
    assert table.find(method, path) is traits


def test_first_route_of_a_path_counts(table: Table) -> None:
    table.add({"GET"}, Traits(path="/v1/policy"))
    assert table.find("GET", "/v1/policy") is LINK


def test_openapi_names_headers_of_cached_routes(serve: Serve) -> None:
    app: Any = serve(page=True).app
    cached = {
        path
        for path, operations in app.openapi()["paths"].items()
        if "ETag" in operations.get("get", {"responses": {"200": {}}})["responses"]["200"].get("headers", {})
    }
    assert cached == {"/", "/v1/policy", "/v1/models"}


def test_refused_requests_are_counted_by_route(serve: Serve) -> None:
    client = serve(client_rate=0.01, client_burst=1)
    client.get("/v1/models/fake")
    assert client.get("/v1/models/fake").status_code == 429
    counted = 'movemask_requests_total{method="GET",route="/v1/models/{name}",status="429"} 1.0'
    assert counted in client.get("/metrics").text
