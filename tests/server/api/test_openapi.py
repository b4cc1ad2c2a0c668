"""The OpenAPI document: security, errors, headers, schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.conftest import Serve

BEARER: dict[str, list[str]] = {"HTTPBearer": []}


def operations(document: Any) -> Iterator[tuple[str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def document_of(serve: Serve, **settings: Any) -> Any:
    return serve(**settings).get("/openapi.json").json()


def test_security_with_and_without_keys(serve: Serve) -> None:
    open_to_all = {name: operation["security"] for name, operation in operations(document_of(serve))}
    keyed = {name: operation["security"] for name, operation in operations(document_of(serve, api_keys="k" * 32))}
    for name in open_to_all:
        free = name in ("GET /livez", "GET /readyz", "GET /")
        assert open_to_all[name] == ([] if free else [{}, BEARER])
        assert keyed[name] == ([] if free else [BEARER])


def test_operations_list_errors_and_headers(serve: Serve) -> None:
    document = document_of(serve)
    for name, operation in operations(document):
        assert operation["responses"]["500"]["content"].keys() == {"application/problem+json"}, name
        for status, response in operation["responses"].items():
            headers = response["headers"]
            assert "X-Request-ID" in headers
            assert ("RateLimit" in headers) == bool(operation["security"]), (name, status)
            assert ("Retry-After" in headers) == (status in ("429", "503"))
            assert ("WWW-Authenticate" in headers) == (status in ("401", "403"))
            assert ("ETag" in headers) == (
                name in ("GET /", "GET /v1/policy", "GET /v1/models") and status in ("200", "304")
            )
            for reference in headers.values():
                assert reference["$ref"].rpartition("/")[2] in document["components"]["headers"]


@pytest.mark.parametrize(
    "path", ["/v1/policy?fen=startpos", "/v1/models", "/v1/policy", "/v1/leakage/positions?format=csv"]
)
def test_response_headers_match_document(serve: Serve, path: str) -> None:
    client = serve(client_rate=10, client_burst=10)
    document = client.get("/openapi.json").json()
    response = client.get(path)
    documented = document["paths"][path.partition("?")[0]]["get"]["responses"][str(response.status_code)]["headers"]
    ours = {name for name in document["components"]["headers"] if name in response.headers}
    assert ours - {"Cache-Control"} == documented.keys() - {"Cache-Control"}


def test_tags_licence_and_server(serve: Serve) -> None:
    document = document_of(serve)
    used = {tag for _, operation in operations(document) for tag in operation["tags"]}
    assert used == {tag["name"] for tag in document["tags"]}
    assert all(tag["description"] for tag in document["tags"])
    assert document["info"]["license"]["identifier"] == "GPL-3.0-or-later"
    assert document["servers"] == [{"url": "/"}]


def test_responses_have_schemas(client: TestClient) -> None:
    """Beside NDJSON without one, openapi-fetch typed the JSON of a batch as {}."""
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                for media_type, content in response.get("content", {}).items():
                    assert content.get("schema"), (path, status, media_type)
