"""The JSON of probes and of the version."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class AliveOut(BaseModel):
    """The process answers."""

    status: Literal["alive"] = Field(description="Always `alive`.", examples=["alive"])


class AuditStateOut(BaseModel):
    """The state of the audit, which never stops answers."""

    waiting: int = Field(description="Number of audit records that are not written yet.", examples=[0])
    dropped: int = Field(description="Number of audit records that were lost.", examples=[0])
    failure: str | None = Field(
        description="Why records cannot be written; null if they can.", examples=["database is locked"]
    )


class ReadyOut(BaseModel):
    """Requests can be answered."""

    status: Literal["ready"] = Field(description="Always `ready`; otherwise there is a problem.", examples=["ready"])
    models: dict[str, Literal["served", "failed its check"]] | None = Field(
        None,
        description="The state of each model by name; needs the scope `metrics` if keys are set.",
        examples=[{"maia-1500": "served"}],
    )
    audit: AuditStateOut | None = Field(
        None, description="The state of the audit; needs the scope `metrics` if keys are set."
    )


class VersionOut(BaseModel):
    """What answers."""

    name: Literal["movemask"] = Field(description="Always `movemask`.", examples=["movemask"])
    version: str = Field(description="Version of the service, by semantic versioning.", examples=["0.1.0"])
    api: Literal["v1"] = Field(description="Version of the API, as in the paths.", examples=["v1"])
    model: str = Field(description="Name of the default model.", examples=["maia-1500"])
