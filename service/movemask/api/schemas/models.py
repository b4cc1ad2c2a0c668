"""The JSON of models."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from movemask.api.schemas.leakage import FreshnessOut, ModelLeakageOut
from movemask.inference.registry import Entry


class CheckStepOut(BaseModel):
    """One step of the contract check."""

    name: str
    passed: bool
    found: str


class ModelEntryOut(BaseModel):
    """A model of the folder. `failure` says why it is not served."""

    name: str
    default: bool
    served: bool
    failure: str | None = None
    rejected: str | None = Field(
        None, description="Why changed files in the folder did not replace those that are served."
    )
    digest: str | None = None
    contract: dict[str, Any] | None = None
    card: dict[str, Any] | None = None
    check: list[CheckStepOut] | None = Field(
        None, description="The steps of the contract check, up to the first that failed."
    )
    loaded: bool | None = Field(None, description="Whether it is in memory; if not, the next request loads it.")
    leakage: ModelLeakageOut | None = Field(None, description="Leakage of its answers so far, if any.")
    freshness: FreshnessOut | None = Field(None, description="How fresh `leakage` is.")


class ModelsOut(BaseModel):
    models: list[ModelEntryOut]


def entry_out(entry: Entry, default: str) -> ModelEntryOut:
    """The JSON of a model of the registry."""
    out: dict[str, Any] = {"name": entry.name, "default": entry.name == default, "served": entry.served}
    if entry.failure is not None:
        out["failure"] = entry.failure
    if entry.digest is not None:
        out["digest"] = entry.digest
    if entry.rejected is not None:
        out["rejected"] = entry.rejected
    if entry.steps:
        out["check"] = [CheckStepOut(name=step.name, passed=step.passed, found=step.found) for step in entry.steps]
    if entry.contract is not None:
        out["contract"] = entry.contract.model_dump(mode="json", exclude={"card"})
        out["card"] = entry.contract.card
    return ModelEntryOut(**out)
