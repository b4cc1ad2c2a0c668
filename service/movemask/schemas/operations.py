"""The models with their vocabularies, the health of the service, and its version."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from movemask.schemas.figures import ModelLeakageOut
from movemask.schemas.shapes import ByName, Items, Out


class CheckStepOut(Out):
    """One step of the contract check."""

    name: str = Field(description="The step; docs/models.md says what each checks.")
    passed: bool = Field(description="Whether the model passed.")
    found: str = Field(description="What was found, for people.")


class ModelEntryOut(Out):
    """A model in the models folders. `failure` says why it is not served."""

    name: str = Field(description="Its name in requests.")
    default: bool = Field(description="Whether it answers requests that name no model.")
    served: bool = Field(description="Whether it answers requests.")
    failure: str | None = Field(None, description="Why it is not served.")
    digest: str | None = Field(None, description="SHA-256 of the network's file.")
    contract: ByName[dict[str, Any] | None] | None = Field(
        None,
        description="The sections of its TOML (docs/models.md), `[contract]` as `terms`; left out if unreadable.",
    )
    card: dict[str, Any] | None = Field(
        None, description="Free text and figures: source, licence, data, date."
    )
    check: Items[CheckStepOut] | None = Field(
        None, description="The steps of its check, up to the first that failed."
    )
    leakage: ModelLeakageOut | None = Field(
        None, description="Leakage of its answers so far, if any; left out while it cannot be read."
    )


class ModelsOut(Out):
    """The models."""

    models: Items[ModelEntryOut] = Field(description="In alphabetical order.")


class AliveOut(Out):
    """The process answers."""

    status: Literal["alive"] = Field(description="Always `alive`.")


class LedgerStateOut(Out):
    """The state of the ledger. Answers do not depend on it."""

    waiting: int = Field(
        description="Number of positions that the answering worker has not written yet."
    )
    lost: int = Field(
        description="Number of positions that the answering worker did not and will not write."
    )
    failure: str | None = Field(
        description="Set while the answering worker cannot write; the log says why."
    )


class MetricsStateOut(Out):
    """The state of the answering worker's metrics. Answers do not depend on it."""

    in_memory: bool = Field(
        description="Whether the temporary folder had no room for its metrics, so that only its own /metrics has them."
    )
    refused: int = Field(
        description="Number of label sets that had no room, so that no /metrics has them."
    )


class ReadyOut(Out):
    """Requests can be answered. If keys are set, everything but `status` needs the scope `metrics`."""

    status: Literal["ready"] = Field(
        description="Always `ready`; otherwise the response is a problem."
    )
    models: ByName[str] | None = Field(
        None, description="By name: `served`, or why it cannot answer."
    )
    ledger: LedgerStateOut | None = Field(None, description="State of the ledger.")
    metrics: MetricsStateOut | None = Field(None, description="State of the metrics.")
    waiting: int | None = Field(
        None, description="Number of positions waiting for a network, in this worker."
    )


class VersionOut(Out):
    """The service."""

    name: Literal["movemask"] = Field(description="Always `movemask`.")
    version: str = Field(description="Version of the service, by semantic versioning.")
    api: Literal["v1"] = Field(description="Version of the API, as in the paths.")
    model: str = Field(description="Name of the default model.")


class VocabularyOut(Out):
    """The moves that a network has logits for, in the order of its slots."""

    name: str = Field(description="The vocabulary or the model that was asked for.")
    vocabulary: str = Field(description="Name of the vocabulary.")
    slots: int = Field(description="Number of slots.")
    castling: Literal["king_takes_rook", "king_two_squares"] = Field(
        description="How castling is written: e1h1, or e1g1."
    )
    bare_promotion: str | None = Field(
        description="The piece of a promotion without a letter: n or q; null if all promotions have one."
    )
    black: Literal["ranks", "rotated", "none"] = Field(
        description="How Black's moves are looked up: with their ranks flipped, on a rotated board, or as they are."
    )
    moves: Items[str | None] = Field(
        description="The move of each slot, in UCI; null for a slot of no move."
    )
