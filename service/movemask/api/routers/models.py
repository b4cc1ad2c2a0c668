"""`GET /v1/models`, `/v1/models/{name}`: the networks and their contracts."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Request

from movemask.api import problems
from movemask.api.keys import Scope
from movemask.api.routers.leakage import model_figures_out
from movemask.api.routes import Router
from movemask.api.schemas.leakage import FreshnessOut, ModelLeakageOut
from movemask.api.schemas.operations import CheckStepOut, ContractOut, ModelEntryOut, ModelsOut
from movemask.api.services import AppServices, Services
from movemask.api.telemetry import context_of
from movemask.network.registry import Entry

ModelName = Annotated[str, Path(description="Name of a model.")]

router = Router(tags=["models"])


@router.get("/v1/models", summary="The networks", response_model_exclude_unset=True)
async def models(services: AppServices) -> ModelsOut:
    """Every model of the folder. `failure` says why a model is not served."""
    return ModelsOut(models=[_entry_out(entry, services) for entry in services.registry])


@router.get(
    "/v1/models/{name}",
    summary="One network: contract, check, digest, card, leakage so far",
    response_model_exclude_unset=True,
    responses=problems.documented(404, 503),
)
async def model(name: ModelName, request: Request, services: AppServices) -> ModelEntryOut:
    """One model: its contract, the result of its check, its digest, its card (source, licence, data, figures) and
    the leakage of its answers so far. If keys are set, the leakage needs the scope `audit`."""
    entry = services.registry.entry(name)
    out = _entry_out(entry, services)
    if Scope.AUDIT in context_of(request.scope).scopes:
        out.freshness = FreshnessOut.model_validate(services.recorder.freshness())
        for figures in await services.readers.run(lambda: services.figures.models(entry.name)):
            out.leakage = ModelLeakageOut.model_validate(model_figures_out(figures))
    return out


def _entry_out(entry: Entry, services: Services) -> ModelEntryOut:
    """The JSON of a model of the registry."""
    out: dict[str, Any] = {"name": entry.name, "default": entry.name == services.registry.default}
    for name in ("served", "failure", "digest", "rejected"):
        if (value := getattr(entry, name)) is not None:
            out[name] = value
    if entry.steps:
        out["check"] = [CheckStepOut.model_validate(step, from_attributes=True) for step in entry.steps]
    if entry.contract is not None:
        sections = entry.contract.model_dump(mode="json", exclude={"card"})
        out["contract"] = ContractOut(terms=sections.pop("contract"), **sections)
        out["card"] = entry.contract.card
    return ModelEntryOut(**out)
