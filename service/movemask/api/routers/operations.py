"""`GET /livez`, `/readyz`, `/metrics`: for operators. The probes answer HEAD too."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import CONTENT_TYPE_LATEST

from movemask.api import problems
from movemask.api.access import may
from movemask.api.keys import Scope
from movemask.api.services import AppServices

router = APIRouter(tags=["operations"])
metrics_router = APIRouter(tags=["operations"])  # the only one of them that needs a key, if there are any


@router.head("/livez", include_in_schema=False)
@router.get("/livez", summary="Alive")
async def livez() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "alive"}


@router.head("/readyz", response_model=None, include_in_schema=False)
@router.get("/readyz", summary="Able to answer", response_model=None, responses=problems.documented(503))
async def readyz(request: Request, services: AppServices) -> dict[str, Any] | Response:
    """Whether positions can be answered now, and the state of the audit, which never stops answers. If keys are set,
    only a key with the scope `metrics` sees more than the status."""
    reasons, told = services.unready(), may(request.scope, Scope.METRICS)
    if reasons:
        detail = "; ".join(reasons) if told else "the default model cannot answer"
        return problems.response(problems.problem(problems.NOT_READY, detail))
    if not told:
        return {"status": "ready"}
    recorder = services.recorder
    return {
        "status": "ready",
        "models": {entry.name: "served" if entry.served else "failed its check" for entry in services.registry},
        "audit": {"waiting": recorder.waiting, "dropped": recorder.dropped, "failure": recorder.failure},
    }


@metrics_router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {CONTENT_TYPE_LATEST: {}}}},
)
async def metrics(request: Request, services: AppServices) -> Response:
    """Prometheus metrics, of all worker processes."""
    exposition = request.app.state.exposition
    text = await (exposition() if exposition else run_in_threadpool(services.metrics.exposition))
    return Response(text, media_type=CONTENT_TYPE_LATEST)
