"""`GET /v1/models`, `/v1/models/{name}`: which networks there are, and under what contract."""

from __future__ import annotations

from fastapi import APIRouter

from service.api import problems
from service.api.schemas.figures import ModelEntryOut, ModelsOut, entry_out
from service.api.services import Given

router = APIRouter(tags=["models"])


@router.get("/v1/models", summary="The networks", response_model_exclude_unset=True)
async def models(held: Given) -> ModelsOut:
    """Every model of the folder; one that failed its check is not served, and says why."""
    return ModelsOut(models=[entry_out(entry, held.registry.default) for entry in held.registry])


@router.get(
    "/v1/models/{name}",
    summary="One network: contract, digest, card",
    response_model_exclude_unset=True,
    responses=problems.documented(404),
)
async def model(name: str, held: Given) -> ModelEntryOut:
    """One model: its contract, digest and card."""
    return entry_out(held.registry.entry(name), held.registry.default)
