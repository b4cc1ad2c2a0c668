"""The audit's figures and the models as JSON."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from service.audit.store import ModelFigures, WorstPosition
from service.inference.registry import Entry


class KindOut(BaseModel):
    """Count, mean and maximum are exact, quantiles within 1 %."""

    count: int
    unmeasured: int = Field(description="Answers whose illegal logits were NaN or +inf.")
    mean: float | None
    max: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    p999: float | None


class ModelLeakageOut(BaseModel):
    digest: str
    positions: int
    trained_with_mask: bool
    kinds: dict[str, KindOut]


class LeakageFiguresOut(BaseModel):
    models: dict[str, ModelLeakageOut]


class IllegalMoveOut(BaseModel):
    uci: str
    probability: float


class WorstPositionOut(BaseModel):
    fen: str
    chess960: bool
    model: str
    digest: str
    time: float = Field(description="Seconds since 1970.")
    raw: float | None
    multiplied: float
    legal_moves: int
    illegal: list[IllegalMoveOut] = Field(description="Illegal moves that plain softmax gives most, heaviest first.")


class WorstOut(BaseModel):
    positions: list[WorstPositionOut]


class CheckStepOut(BaseModel):
    """One part of the contract check."""

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
        None, description="Why the files that are there now did not take the place of those that are served."
    )
    digest: str | None = None
    contract: dict[str, Any] | None = None
    card: dict[str, Any] | None = None
    check: list[CheckStepOut] | None = Field(None, description="The contract check, as far as it came.")
    loaded: bool | None = Field(None, description="Whether it is in memory now; if not, the next request loads it.")
    leakage: ModelLeakageOut | None = Field(None, description="What the audit has found of it so far, if anything.")


class ModelsOut(BaseModel):
    models: list[ModelEntryOut]


def figures_out(figures: list[ModelFigures]) -> LeakageFiguresOut:
    """The audit's figures as JSON has them."""
    return LeakageFiguresOut(models={model.name: model_figures_out(model) for model in figures})


def model_figures_out(model: ModelFigures) -> ModelLeakageOut:
    """One model's."""
    return ModelLeakageOut(
        digest=model.digest,
        positions=model.positions,
        trained_with_mask=model.trained_with_mask,
        kinds={
            name: KindOut(count=kind.count, unmeasured=kind.unmeasured, mean=kind.mean, max=kind.max, **kind.quantiles)
            for name, kind in model.kinds.items()
        },
    )


def worst_out(positions: list[WorstPosition]) -> WorstOut:
    """The worst positions as JSON has them."""
    return WorstOut(
        positions=[
            WorstPositionOut(
                fen=position.fen,
                chess960=position.chess960,
                model=position.model,
                digest=position.digest,
                time=position.time,
                raw=position.raw,
                multiplied=position.multiplied,
                legal_moves=position.legal_moves,
                illegal=[IllegalMoveOut(uci=uci, probability=mass) for uci, mass in position.illegal],
            )
            for position in positions
        ]
    )


def entry_out(entry: Entry, default: str) -> ModelEntryOut:
    """A model of the registry as JSON has it."""
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
