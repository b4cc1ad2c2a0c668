"""The JSON of models."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from movemask.api.schemas.answers import MODEL_DIGEST
from movemask.api.schemas.leakage import FreshnessOut, ModelLeakageOut


class CheckStepOut(BaseModel):
    """One step of the contract check."""

    name: str = Field(description="The step; docs/models.md says what each checks.", examples=["vocabulary"])
    passed: bool = Field(description="Whether the model passed.", examples=[True])
    found: str = Field(
        description="What was found, for people.", examples=["every legal move of 9 positions has a slot"]
    )


class ContractOut(BaseModel):
    """How positions are encoded and logits are read: the sections of the model's TOML (docs/models.md). `terms` is its
    section `[contract]`."""

    network: dict[str, Any] = Field(
        description="The backend, the file and its digest.", examples=[{"backend": "onnx", "file": "maia-1500.onnx"}]
    )
    terms: dict[str, Any] = Field(
        description="The encodings: planes, vocabulary, history, variations.",
        examples=[{"planes": "lc0-112", "vocabulary": "lc0-1858", "trained_with_mask": False}],
    )
    inputs: dict[str, Any] = Field(description="Names of the inputs.", examples=[{"planes": "planes"}])
    outputs: dict[str, Any] = Field(description="Names and forms of the outputs.", examples=[{"logits": "policy"}])
    elo: dict[str, Any] = Field(
        description="The default rating and the range of ratings, in Elo points.",
        examples=[{"default": 1500, "minimum": 600, "maximum": 2600, "scale": "lichess"}],
    )
    calibration: dict[str, Any] | None = Field(
        description="The fitted temperature; null for a model that is not calibrated.",
        examples=[{"temperature": 1.04, "positions": 3858}],
    )


class ModelEntryOut(BaseModel):
    """A model of the folders. `failure` says why it is not served."""

    name: str = Field(description="Its name in requests.", examples=["maia-1500"])
    default: bool = Field(description="Whether it answers requests that name no model.", examples=[False])
    served: bool = Field(description="Whether it answers requests.", examples=[True])
    failure: str | None = Field(
        None, description="Why it is not served.", examples=["maia-1500.toml: contract.planes: this key is missing"]
    )
    rejected: str | None = Field(
        None,
        description="Why changed files in the folder did not replace those that are served.",
        examples=["maia-1500.toml: not TOML"],
    )
    digest: str | None = Field(None, description=MODEL_DIGEST.description, examples=MODEL_DIGEST.examples)
    contract: ContractOut | None = Field(None, description="Left out if it cannot be read.")
    card: dict[str, Any] | None = Field(
        None,
        description="Free: source, licence, data, date, figures.",
        examples=[{"source": "CSSLab/maia-chess", "licence": "GPL-3.0"}],
    )
    check: list[CheckStepOut] | None = Field(
        None, description="The steps of the contract check, up to the first that failed."
    )
    loaded: bool | None = Field(
        None, description="Whether it is in memory; if not, the next request loads it.", examples=[True]
    )
    leakage: ModelLeakageOut | None = Field(None, description="Leakage of its answers so far, if any.")
    freshness: FreshnessOut | None = Field(None, description="How fresh `leakage` is.")


class ModelsOut(BaseModel):
    """The models."""

    models: list[ModelEntryOut] = Field(description="In order of name.")
