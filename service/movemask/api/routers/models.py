"""`GET /v1/models`, `/v1/models/{name}`: which networks there are, and under what contract."""

from __future__ import annotations

from fastapi import APIRouter

from movemask.api import problems
from movemask.api.schemas.leakage import freshness_out, model_figures_out
from movemask.api.schemas.models import ModelEntryOut, ModelsOut, entry_out
from movemask.api.services import Given, Services
from movemask.inference.registry import Entry

router = APIRouter(tags=["models"])


@router.get("/v1/models", summary="The networks", response_model_exclude_unset=True)
async def models(held: Given) -> ModelsOut:
    """Every model of the folder; one that failed its check is not served, and says why."""
    return ModelsOut(models=[_told(entry, held) for entry in held.registry])


@router.get(
    "/v1/models/{name}",
    summary="One network: contract, check, digest, card, leakage so far",
    response_model_exclude_unset=True,
    responses=problems.documented(404, 503),
)
async def model(name: str, held: Given) -> ModelEntryOut:
    """One model: its contract, what its check found, digest, card (source, licence, data, figures) and the
    leakage of what it has answered so far."""
    entry = held.registry.entry(name)
    out = _told(entry, held)
    out.freshness = freshness_out(held.recorder.freshness())
    for figures in await held.readers.run(lambda: held.figures.models(entry.name)):
        out.leakage = model_figures_out(figures)
    return out


def _told(entry: Entry, held: Services) -> ModelEntryOut:
    out = entry_out(entry, held.registry.default)
    out.loaded = entry.name in held.serving.loaded()
    return out
