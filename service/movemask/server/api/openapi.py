"""The OpenAPI document: its route, and `install`, which completes what FastAPI writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response

from movemask.server import problems
from movemask.server.api.caching import cacheable
from movemask.server.api.routing import OPEN, Routes
from movemask.server.edge.headers import HEADERS, Operation
from movemask.server.edge.traits import Table, Traits

DESCRIPTION = """
The move distribution of a chess policy network, with all probability on legal moves, and *leakage*: the probability
that an unmasked or wrongly masked softmax would have given to illegal ones. Errors are `application/problem+json`
(RFC 9457), with a stable `type` and a `detail` that names the offending input.
"""

_TAGS = {
    "policy": "Move probabilities, and moves that are chosen by them.",
    "games": "Reports on whole games.",
    "leakage": "How much probability wrong masks would have put on illegal moves.",
    "models": "The networks, their contracts and their vocabularies.",
    "operations": "Probes, metrics and versions.",
    "page": "The web page.",
}

#: By the name of a schema: requests, or an answer of the shipped network, its lists and figures cut short.
EXAMPLES: dict[str, list[Any]] = json.loads((Path(__file__).parent / "examples.json").read_text())


#: Swagger UI, which has a script inside the page.
_INLINE = (
    b"default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    b"worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

#: Its document comes before FastAPI's own of the same path: it has an ETag, and is written once.
routes = Routes("operations")


def install(app: FastAPI, table: Table, *, keyed: bool) -> None:
    """Completes the document of `app`. `keyed` : whether the service has API keys."""

    def completed() -> dict[str, Any]:
        document = FastAPI.openapi(app)  # which FastAPI keeps
        if "servers" not in document:
            _complete(document, table, keyed=keyed)
        return document

    app.openapi = completed  # type: ignore[method-assign]
    app.state.openapi = {}


@routes.get(
    "/openapi.json",
    scopes=OPEN,
    any_parameters=True,
    cached=True,
    shared=True,
    timed=False,
    include_in_schema=False,
)
async def document(http: Request) -> Response:
    """The OpenAPI document, with the server's own path prefix."""
    root_path: str = http.scope.get("root_path", "")
    written: dict[str, bytes] = http.app.state.openapi
    if root_path not in written:
        servers = [{"url": root_path or "/"}]
        written[root_path] = orjson.dumps({**http.app.openapi(), "servers": servers})
    return cacheable(http, written[root_path])


def documents(path: str) -> Traits:
    """Returns what holds for FastAPI's own routes: Swagger UI and its redirect."""
    return Traits(path=path, cached=True, csp=_INLINE)


def _complete(document: dict[str, Any], table: Table, *, keyed: bool) -> None:
    """Adds everything that FastAPI does not know of."""
    document["info"]["license"] = {"name": "GPL-3.0-or-later", "identifier": "GPL-3.0-or-later"}
    document["servers"] = [{"url": "/"}]
    document["tags"] = [{"name": name, "description": text} for name, text in _TAGS.items()]
    components = document["components"]
    components["headers"] = {
        header.name: {
            "description": header.description,
            "schema": {"type": "integer" if header.name == "Retry-After" else "string"},
        }
        for header in HEADERS
        if header.description
    }
    for name, examples in EXAMPLES.items():
        components["schemas"][name]["examples"] = examples
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            secured = operation.setdefault("security", [])
            if secured and not keyed:
                secured.insert(0, {})
            operation["responses"]["500"] = problems.documented(500)[500]
            for status, response in operation["responses"].items():
                place = Operation(table.find(method.upper(), path), status, bool(secured))
                names = [
                    header.name
                    for header in HEADERS
                    if header.description and header.documented(place)
                ]
                response["headers"] = {
                    name: {"$ref": f"#/components/headers/{name}"} for name in names
                }
