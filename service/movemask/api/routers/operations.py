"""`GET /livez`, `/readyz`, `/metrics`: for operators. The probes answer HEAD too."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from movemask.api import problems
from movemask.api.services import AppServices

router = APIRouter(tags=["operations"])


@router.head("/livez", include_in_schema=False)
@router.get("/livez", summary="Alive")
async def livez() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "alive"}


@router.head("/readyz", response_model=None, include_in_schema=False)
@router.get("/readyz", summary="Able to answer", response_model=None, responses=problems.documented(503))
async def readyz(services: AppServices) -> dict[str, Any] | Response:
    """Whether positions can be answered now, and the state of the audit, which never stops answers."""
    reasons = services.unready()
    if reasons:
        return problems.response(problems.problem(problems.NOT_READY, "; ".join(reasons)))
    recorder = services.recorder
    return {
        "status": "ready",
        "models": {entry.name: "served" if entry.served else "failed its check" for entry in services.registry},
        "audit": {"waiting": recorder.waiting, "dropped": recorder.dropped, "failure": recorder.failure},
    }


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {CONTENT_TYPE_LATEST: {}}}},
)
def metrics(services: AppServices) -> Response:
    """Prometheus metrics, of all worker processes."""
    return Response(services.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)
