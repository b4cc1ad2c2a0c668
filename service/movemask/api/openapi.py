"""What is added to the OpenAPI document that FastAPI writes: whole examples of answers, and that keys may be absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI

#: By the name of a schema: requests, or an answer of the shipped network, its lists and figures cut short.
EXAMPLES: dict[str, list[Any]] = json.loads((Path(__file__).parent / "schemas" / "examples.json").read_text())


def complete(app: FastAPI, *, keyed: bool) -> None:
    """Completes the document of an app: without keys, `security` also holds `{}`."""
    written = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = written()
            for name, examples in EXAMPLES.items():
                document["components"]["schemas"][name]["examples"] = examples
            for operations in document["paths"].values():
                for operation in operations.values():
                    if "security" in operation and not keyed:
                        operation["security"].append({})
        return written()

    app.openapi = openapi  # type: ignore[method-assign]
