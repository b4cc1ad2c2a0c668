"""What a client's author would lose: a document from which the API can be used without reading the code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from movemask.api.app import EXAMPLES, create_app
from movemask.api.schemas import answers, reports
from tests.api.test_schemas import held_to

DOCUMENT: dict[str, Any] = create_app().openapi()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]

#: How the description of a number says what it counts or is measured in.
UNITS = re.compile(
    r"probabilit|nats|0 to 1|elo points|milliseconds|seconds|number of|\bnumber\b|plies|status code|no unit|median|mean"
    r"|percentile|place of the move|divided by|expected score|coefficient|entropy|most ",
    re.I,
)


def fields() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, schema in SCHEMAS.items():
        for field, found in schema.get("properties", {}).items():
            yield f"{name}.{field}", found
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", []):
                yield f"{method} {path} {parameter['name']}", {**parameter["schema"], **parameter}


def referred(field: dict[str, Any]) -> list[str]:
    """Names of the schemas that a field is made of; they describe themselves."""
    return re.findall(r"#/components/schemas/(\w+)", json.dumps(field))


def is_number(field: dict[str, Any]) -> bool:
    kinds = [field, *field.get("anyOf", [])]
    return any(kind.get("type") in ("number", "integer") for kind in kinds)


def test_every_field_and_parameter_has_a_description_and_numbers_a_unit() -> None:
    found = list(fields())
    assert len(found) > 240
    undescribed = [name for name, field in found if not field.get("description") and not referred(field)]
    unitless = [name for name, field in found if is_number(field) and not UNITS.search(field.get("description", ""))]
    assert (undescribed, unitless) == ([], [])
    assert [name for name, schema in SCHEMAS.items() if not schema.get("description")] == []


def test_every_body_and_answer_has_a_whole_example() -> None:
    shown = set()
    for operation in (operation for methods in DOCUMENT["paths"].values() for operation in methods.values()):
        for part in (operation.get("requestBody", {}), *operation["responses"].values()):
            shown |= {name for media in part.get("content", {}).values() for name in referred(media.get("schema", {}))}
    assert len(shown) == 22
    assert [name for name in shown if not SCHEMAS[name].get("examples")] == []


@pytest.mark.parametrize("name", sorted(name for name in EXAMPLES if not name.endswith("In")))
def test_an_example_is_an_answer_of_its_shape(name: str) -> None:
    module = next(one for one in (answers, reports) if hasattr(one, name))
    for example in EXAMPLES[name]:
        held_to(getattr(module, name), example)


PAGES = ["/openapi.json", "/docs", "/redoc"]
GETS = [path for path, methods in DOCUMENT["paths"].items() if "get" in methods] + PAGES


@pytest.mark.parametrize("path", GETS)
def test_head_answers_as_get_without_the_body(client: TestClient, path: str) -> None:
    url = path.replace("{name}", "fake")
    got, head = client.get(url), client.head(url)
    assert (got.status_code, head.status_code, head.content) == (200, 200, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    assert client.head(url + "?zzz=1").status_code == (200 if path in ("/", "/openapi.json") else 422)


def test_head_of_a_stream_reads_no_rows(client: TestClient) -> None:
    head = client.head("/v1/leakage/positions?format=csv")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["movemask-as-of-utc"].endswith("Z")


def test_the_version_is_told(client: TestClient) -> None:
    found = client.get("/v1/version").json()
    assert found == {"name": "movemask", "version": DOCUMENT["info"]["version"], "api": "v1", "model": "fake"}
