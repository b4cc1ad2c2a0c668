"""`GET /v1/leakage`, `/v1/leakage/worst`: what the audit has found."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.api import problems
from service.api.schemas.figures import LeakageFiguresOut, WorstOut, figures_out, worst_out
from service.api.services import Given, Services
from service.audit.store import RANKED_KINDS
from service.errors import UnknownKind

#: How long a reader waits for what was answered just before to be written.
_FLUSH_SECONDS = 2.0

router = APIRouter(tags=["leakage"])


@router.get("/v1/leakage", summary="What would have leaked, by model and kind", responses=problems.documented(404, 503))
def figures(held: Given, model: str | None = None) -> LeakageFiguresOut:
    """Leakage of all positions answered so far, by model and kind. What was answered before the call is counted.

    `raw` is what plain softmax would have given to illegal moves, `multiplied` what `softmax(logits * mask)`
    would have, `served` what the answers gave.
    """
    _written(held)
    return figures_out(held.store.figures(_known(held, model)))


@router.get("/v1/leakage/worst", summary="The positions that leak most", responses=problems.documented(404, 422, 503))
def worst(
    held: Given,
    kind: Annotated[str, Query(description="raw or multiplied")] = "raw",
    limit: Annotated[int, Query(ge=1, le=1000)] = 10,
    model: str | None = None,
) -> WorstOut:
    """The positions with the most leakage of a kind, worst first, and the illegal moves that plain softmax
    gives most."""
    if kind not in RANKED_KINDS:
        raise UnknownKind(f"kind: {kind!r} cannot be ranked; there are {', '.join(RANKED_KINDS)}")
    _written(held)
    return worst_out(held.store.worst(kind, limit, _known(held, model)))


def _written(held: Services) -> None:
    held.recorder.flush(_FLUSH_SECONDS)


def _known(held: Services, model: str | None) -> str | None:
    return None if model is None else held.registry.entry(model).name
