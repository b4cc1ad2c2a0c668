"""`Router` and `operation_id`: how routes are declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter
from fastapi.routing import APIRoute

E = TypeVar("E", bound=Callable[..., Any])


class Router(APIRouter):
    """Answers HEAD wherever it answers GET; the server leaves out the body."""

    def get(self, path: str, **options: Any) -> Callable[[E], E]:
        def declare(endpoint: E) -> E:
            self.add_api_route(path, endpoint, methods=["GET"], **options)
            self.add_api_route(path, endpoint, methods=["HEAD"], **{**options, "include_in_schema": False})
            return endpoint

        return declare


def operation_id(route: APIRoute) -> str:
    """The path in camel case: `/v1/policy/batch` → `policyBatch`, `/v1/models/{name}` → `model`."""
    parts = [part for part in route.path.split("/") if part not in ("", "v1")]
    if parts and parts[-1].startswith("{"):
        parts = [*parts[:-2], parts[-2].removesuffix("s")]
    first, *rest = parts or ["root"]
    return first + "".join(part.capitalize() for part in rest)
