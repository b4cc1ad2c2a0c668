"""`OPENAPI`, the route of the OpenAPI document, and `install_openapi`, which completes what FastAPI writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.routing import Route

from movemask.server import problems
from movemask.server.api.caching import cacheable
from movemask.server.edge.headers import HEADERS, Operation

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


def install_openapi(app: FastAPI, *, keyed: bool) -> None:
    """Completes the document of `app`. `keyed` : whether the service has API keys."""

    def document() -> dict[str, Any]:
        openapi = FastAPI.openapi(app)  # which FastAPI keeps
        if "servers" not in openapi:
            _complete(openapi, keyed=keyed)
        return openapi

    app.openapi = document  # type: ignore[method-assign]


async def _respond(http: Request) -> Response:
    servers = [{"url": http.scope.get("root_path") or "/"}]
    return cacheable(http, orjson.dumps({**http.app.openapi(), "servers": servers}))


#: Declared before FastAPI's own route of the same path: it has an ETag.
OPENAPI = Route("/openapi.json", _respond, include_in_schema=False)


def _complete(document: dict[str, Any], *, keyed: bool) -> None:
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
                place = Operation(method, path, status, bool(secured))
                names = [
                    header.name
                    for header in HEADERS
                    if header.description and header.documented(place)
                ]
                response["headers"] = {
                    name: {"$ref": f"#/components/headers/{name}"} for name in names
                }
