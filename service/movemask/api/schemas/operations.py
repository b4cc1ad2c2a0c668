"""The JSON of models, probes and the version."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from movemask.api.schemas.leakage import FreshnessOut, ModelLeakageOut


class CheckStepOut(BaseModel):
    """One step of the contract check."""

    name: str = Field(description="The step; docs/models.md says what each checks.")
    passed: bool = Field(description="Whether the model passed.")
    found: str = Field(description="What was found, for people.")


class ContractOut(BaseModel):
    """How positions are encoded and logits are read: the sections of the model's TOML (docs/models.md). `terms` is its
    section `[contract]`."""

    network: dict[str, Any] = Field(description="The file and its digest.")
    terms: dict[str, Any] = Field(description="The encodings: planes, vocabulary, history, variations.")
    inputs: dict[str, Any] = Field(description="Names of the inputs.")
    outputs: dict[str, Any] = Field(description="Names and forms of the outputs.")
    elo: dict[str, Any] = Field(description="The default rating and the range of ratings, in Elo points.")
    calibration: dict[str, Any] | None = Field(description="The fitted temperature; null without a calibration.")


class ModelEntryOut(BaseModel):
    """A model of the folders. `failure` says why it is not served."""

    name: str = Field(description="Its name in requests.")
    default: bool = Field(description="Whether it answers requests that name no model.")
    served: bool = Field(description="Whether it answers requests.")
    failure: str | None = Field(None, description="Why it is not served.")
    rejected: str | None = Field(None, description="Why changed files did not replace those that are served.")
    digest: str | None = Field(None, description="SHA-256 of the network's file.")
    contract: ContractOut | None = Field(None, description="Left out if it cannot be read.")
    card: dict[str, Any] | None = Field(None, description="Free: source, licence, data, date, figures.")
    check: list[CheckStepOut] | None = Field(None, description="The steps of its check, up to the first that failed.")
    leakage: ModelLeakageOut | None = Field(None, description="Leakage of its answers so far, if any.")
    freshness: FreshnessOut | None = Field(None, description="How fresh `leakage` is.")


class ModelsOut(BaseModel):
    """The models."""

    models: list[ModelEntryOut] = Field(description="In order of name.")


class AliveOut(BaseModel):
    """The process answers."""

    status: Literal["alive"] = Field(description="Always `alive`.")


class AuditStateOut(BaseModel):
    """The state of the audit, which never stops answers."""

    waiting: int = Field(description="Number of audit records that are not written yet.")
    dropped: int = Field(description="Number of audit records that were lost.")
    failure: str | None = Field(description="Set while records cannot be written; the log says why.")


class ReadyOut(BaseModel):
    """Requests can be answered."""

    status: Literal["ready"] = Field(description="Always `ready`; otherwise there is a problem.")
    models: dict[str, Literal["served", "failed its check"]] | None = Field(
        None, description="The state of each model by name; needs the scope `metrics` if keys are set."
    )
    audit: AuditStateOut | None = Field(None, description="State of the audit; as `models`.")
    waiting: int | None = Field(None, description="Number of positions that wait for a network; as `models`.")


class VersionOut(BaseModel):
    """What answers."""

    name: Literal["movemask"] = Field(description="Always `movemask`.")
    version: str = Field(description="Version of the service, by semantic versioning.")
    api: Literal["v1"] = Field(description="Version of the API, as in the paths.")
    model: str = Field(description="Name of the default model.")
