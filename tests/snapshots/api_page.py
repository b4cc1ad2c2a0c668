"""docs/api.md and docs/fields.md, made from the OpenAPI document: each endpoint, and each object on the wire."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from movemask.server.edge.headers import HEADERS, Operation
from movemask.server.edge.traits import OTHER

Json = dict[str, Any]

#: Endpoints whose examples need more than an address or a body.
ADDRESSES = {
    "/v1/policy": "/v1/policy?fen=startpos&elo=1500",
    "/v1/leakage": "/v1/leakage?by=phase",
    "/v1/leakage/worst": "/v1/leakage/worst?kind=raw&limit=1",
    "/v1/leakage/positions": "/v1/leakage/positions?limit=1",
    "/v1/models/{name}": "/v1/models/movemask-8",
    "/v1/vocabularies/{name}": "/v1/vocabularies/movemask-8",
}
#: Answers that the page does not show: they are pages, lists for a machine, or longer than a screen.
LONGEST = 1500
#: Objects that have all fields of another one, which are not repeated.
EXTENDS = {"ResultOut": "PolicyOut"}
EVERYWHERE = {"401", "403", "422", "429", "500"}
#: Headers of every answer that needs a key; the page names them once.
OF_ALL = {header.name for header in HEADERS if header.documented(Operation(OTHER, "200", keyed=True))}


def endpoints_page(document: Json) -> str:
    """Markdown of the endpoints of an OpenAPI document, in its order."""
    text = "\n".join(_endpoints(document)).rstrip() + "\n"
    return text.replace("](#", "](fields.md#")


def fields_page(document: Json) -> str:
    """Markdown of the schemas of an OpenAPI document, by name."""
    schemas = document["components"]["schemas"]
    rows = {name: _fields(schema) for name, schema in schemas.items()}
    parts = [_schema(name, schemas[name], rows) for name in sorted(schemas)]
    return "\n".join(parts).rstrip() + "\n"


def _endpoints(document: Json) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"## {method.upper()} {path}\n"
            yield f"{operation.get('description') or operation['summary'] + '.'}\n"
            if parameters := operation.get("parameters"):
                rows = [
                    _row(p["name"], p["schema"], p.get("description", ""), required=p.get("required", False))
                    for p in parameters
                ]
                yield _table("parameter", rows)
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            if content:
                yield f"Body: {_type(content['schema'])}.\n"
            yield from _responses(operation["responses"])
            yield from _example(document, method, path, content.get("schema"), operation["responses"])


def _responses(responses: Json) -> Iterator[str]:
    for status, response in responses.items():
        if status.startswith("2"):
            kinds = [
                f"`{media}`" + (f" ({_type(kind['schema'])})" if "$ref" in kind.get("schema", {}) else "")
                for media, kind in response.get("content", {}).items()
            ]
            headers = [f"`{name}`" for name in response.get("headers", {}) if name not in OF_ALL]
            yield f"Response: {', '.join(kinds)}." + (f" Headers: {', '.join(headers)}." if headers else "") + "\n"
    errors = [status for status in sorted(responses) if status[0] in "45" and status not in EVERYWHERE]
    if errors:
        yield f"Errors of its own: {', '.join(errors)}.\n"


def _example(document: Json, method: str, path: str, body: Json | None, responses: Json) -> Iterator[str]:
    url = ADDRESSES.get(path, path) if method == "get" else path
    command = f"curl -s {shlex.quote('localhost:8000' + url) if '?' in url else 'localhost:8000' + url}"
    if body is not None:
        bodies = _examples(document, body)
        if not bodies:
            return
        command += " -H 'Content-Type: application/json' \\\n  -d " + shlex.quote(json.dumps(bodies[0]))
    elif method != "get":
        return
    yield f"```sh\n{command}\n```\n"
    content = responses.get("200", {}).get("content", {}).get("application/json", {})
    answers = _examples(document, content.get("schema", {}))
    posted = "post" in document["paths"][path]  # the example is the answer to another request
    if (
        answers
        and body is None
        and not posted
        and len(text := json.dumps(answers[0], indent=1, ensure_ascii=False)) <= LONGEST
    ):
        yield f"```json\n{text}\n```\n"


def _examples(document: Json, schema: Json) -> list[Any]:
    if "$ref" not in schema:
        return list(schema.get("examples", []))
    examples = document["components"]["schemas"][schema["$ref"].split("/")[-1]].get("examples", [])
    return list(examples)


def _fields(schema: Json) -> list[tuple[str, str, str]]:
    required = set(schema.get("required", []))
    return [
        _row(field, part, part.get("description", ""), required=field in required)
        for field, part in schema.get("properties", {}).items()
    ]


def _schema(name: str, schema: Json, rows: dict[str, list[tuple[str, str, str]]]) -> str:
    """An object with its fields, without those of the object that it extends."""
    about = " ".join(schema.get("description", "").split())
    own = rows[name]
    if part := EXTENDS.get(name):
        assert set(rows[part]) < set(own)
        own = [row for row in own if row not in rows[part]]
        about += f"\n\nThe fields of {_link(part)}, and:"
    return f"## {name}\n\n" + (f"{about.strip()}\n\n" if about else "") + (_table("field", own) if own else "")


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _row(name: str, schema: Json, about: str, *, required: bool) -> tuple[str, str, str]:
    text = " ".join(about.split())
    if default := _default(schema):
        text += f" Default: `{default}`."
    elif required:
        text += " Required." if text else "Required."
    return f"`{name}`", _type(schema), text.strip()


def _default(schema: Json) -> str:
    value = schema.get("default")
    return "" if value is None or value == [] else json.dumps(value)


def _type(schema: Json) -> str:
    """A type in words, with its limits."""
    if "$ref" in schema:
        return _link(schema["$ref"].split("/")[-1])
    if "anyOf" in schema:
        kinds = [_type(part) for part in schema["anyOf"] if part.get("type") != "null"]
        nullable = " or null" if any(part.get("type") == "null" for part in schema["anyOf"]) else ""
        return " or ".join(dict.fromkeys(kinds)) + nullable
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = str(schema.get("type", "any"))
    if kind == "array":
        limit = f", at most {schema['maxItems']:,}" if "maxItems" in schema else ""
        item = schema.get("items", {})
        each = _limits(item).replace(", ", ", each ", 1)
        return f"list of {_type(item).removesuffix(_limits(item))}{each}{limit}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map to {_type(schema['additionalProperties'])}"
    return kind + _limits(schema)


def _limits(schema: Json) -> str:
    words = {
        "minimum": "≥ {:g}",
        "exclusiveMinimum": "> {:g}",
        "maximum": "≤ {:g}",
        "exclusiveMaximum": "< {:g}",
        "maxLength": "at most {:,} characters",
    }
    return "".join(f", {form.format(schema[key])}" for key, form in words.items() if key in schema)


def _table(head: str, rows: list[tuple[str, str, str]]) -> str:
    lines = [f"| {head} | type | meaning |", "|---|---|---|"]
    lines += [f"| {name} | {kind} | {about.replace('|', chr(92) + '|')} |" for name, kind, about in rows]
    return "\n".join(lines) + "\n"
