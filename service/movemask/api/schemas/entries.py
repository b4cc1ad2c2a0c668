"""Writes the registry's entries as the JSON that `models` describes."""

from __future__ import annotations

from typing import Any

from movemask.api.schemas.models import CheckStepOut, ContractOut, ModelEntryOut
from movemask.network.registry import Entry


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
        sections = entry.contract.model_dump(mode="json", exclude={"card"})
        out["contract"] = ContractOut(terms=sections.pop("contract"), **sections)
        out["card"] = entry.contract.card
    return ModelEntryOut(**out)
