"""The JSON of the audit's figures."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from movemask.leakage.kinds import RAW
from movemask.store.cells import CAUSE
from movemask.store.figures import Bucket, Kinds, ModelFigures, positions_of


class FreshnessOut(BaseModel):
    """How fresh the figures are: they are read as of the last write."""

    model_config = ConfigDict(from_attributes=True)

    as_of: float = Field(
        description="Everything this worker answered before this time is counted, in seconds since 1970."
    )
    waiting: int = Field(description="Audit records of this worker that are not written yet.")


class KindOut(BaseModel):
    """Figures of one kind. All are exact except the quantiles, which are never below the value at their rank (the
    smallest that at least this share of the positions do not exceed) and at most 2 % above it. With by=cause, figures
    that are not measured per cause are left out."""

    count: int
    unmeasured: int | None = Field(None, description="Positions where the kind could not be measured.")
    mean: float | None
    max: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    p999: float | None
    flips: int | None = Field(None, description="Positions whose top move the mistake would have changed.")
    mean_kl: float | None = Field(
        None, description="Mean divergence from the correct policy where it is finite, in nats."
    )
    infinite_kl: int | None = Field(None, description="Positions where a legal move would have had no probability.")


class GroupOut(BaseModel):
    """Positions of one group."""

    positions: int
    share: float | None = Field(None, description="With by=cause: this cause's share of all `raw` mass.")
    kinds: dict[str, KindOut]


class ModelLeakageOut(BaseModel):
    """Figures of one network; `raw`, `unnormalised` and `unmirrored` mean nothing if it was trained with the mask."""

    digest: str
    positions: int
    trained_with_mask: bool
    kinds: dict[str, KindOut]
    since: int | None = Field(
        None, description="With since or until: start of the counted span, in seconds since 1970."
    )
    until: int | None = Field(None, description="End of the counted span.")
    by: dict[str, dict[str, GroupOut]] | None = Field(None, description="With `by`: dimension, then group.")


class LeakageFiguresOut(BaseModel):
    models: dict[str, ModelLeakageOut]
    freshness: FreshnessOut


class BucketOut(BaseModel):
    """One span of time."""

    start: int = Field(description="Seconds since 1970.")
    seconds: int
    positions: int
    kinds: dict[str, KindOut]


class ModelHistoryOut(BaseModel):
    digest: str
    trained_with_mask: bool
    buckets: list[BucketOut]


class HistoryOut(BaseModel):
    models: dict[str, ModelHistoryOut]
    freshness: FreshnessOut


class IllegalMoveOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    uci: str
    probability: float
    cause: str | None = Field(description="Why the move is illegal; null if an older version did not store it.")


class FigureOut(BaseModel):
    """One kind for one position; `kl` is null where it is infinite or not measured."""

    model_config = ConfigDict(from_attributes=True)

    leaked: float | None
    flipped: bool
    kl: float | None


class AuditedOut(BaseModel):
    """An audited position. Fields that an older version did not store are null."""

    model_config = ConfigDict(from_attributes=True)

    fen: str
    chess960: bool
    model: str
    digest: str
    trained_with_mask: bool
    time: float = Field(description="Seconds since 1970.")
    turn: str
    phase: str | None
    in_check: bool | None
    legal_moves: int
    elo: float | None = Field(description="Rating of the side to move, if one was given.")
    raw: float | None
    multiplied: float
    served: float
    kinds: dict[str, FigureOut] = Field(validation_alias="figures")
    causes: dict[str, float] = Field(description="`raw` mass by cause, of moves above the threshold.")
    illegal: list[IllegalMoveOut] = Field(description="Illegal moves that plain softmax gives most, heaviest first.")


class WorstOut(BaseModel):
    positions: list[AuditedOut]
    freshness: FreshnessOut


class PositionsOut(BaseModel):
    positions: list[AuditedOut]
    next: str | None = Field(description="The `cursor` of the next page; null after the last.")
    freshness: FreshnessOut


def model_figures_out(model: ModelFigures, by: str | None = None) -> ModelLeakageOut:
    """The JSON of one model's figures."""
    out: dict[str, Any] = {}
    if model.covered is not None:
        out["since"], out["until"] = model.covered
    if by is not None and model.groups is not None:
        total = model.kinds[RAW].sum if RAW in model.kinds else 0.0
        out["by"] = {by: {group: _group_out(kinds, by, total) for group, kinds in model.groups.items()}}
    return ModelLeakageOut(
        digest=model.digest,
        positions=model.positions,
        trained_with_mask=model.trained_with_mask,
        kinds=_kinds_out(model.kinds),
        **out,
    )


def history_out(model: ModelFigures, buckets: list[Bucket]) -> ModelHistoryOut:
    """The JSON of one model's history."""
    return ModelHistoryOut(
        digest=model.digest,
        trained_with_mask=model.trained_with_mask,
        buckets=[
            BucketOut(
                start=bucket.start,
                seconds=bucket.seconds,
                positions=bucket.positions,
                kinds=_kinds_out(bucket.kinds),
            )
            for bucket in buckets
        ],
    )


def _group_out(kinds: Kinds, by: str, total: float) -> GroupOut:
    out: dict[str, Any] = {}
    if by == CAUSE:
        out["share"] = sum(cell.sum for cell in kinds.values()) / total if total else None
        figures = {name: KindOut(**cell.mass_figures()) for name, cell in kinds.items()}
    else:
        figures = _kinds_out(kinds)
    return GroupOut(positions=positions_of(kinds), kinds=figures, **out)


def _kinds_out(kinds: Kinds) -> dict[str, KindOut]:
    return {name: KindOut(**cell.figures()) for name, cell in kinds.items()}
