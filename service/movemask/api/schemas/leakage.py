"""The JSON of the audit's figures."""

from __future__ import annotations

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, computed_field

from movemask.api.schemas.answers import FEN, MODEL_DIGEST, TRAINED_WITH_MASK, TURN, IllegalMoveOut
from movemask.api.times import rfc3339

_TIME = "2026-11-22T08:07:30.125Z"
_POSITIONS = Field(description="Number of positions.", examples=[123])
_KINDS = Field(description="Figures by kind of leakage; docs/leakage.md says what each is.")
_FRESHNESS = Field(description="How fresh the figures are.")


class FreshnessOut(BaseModel):
    """How fresh the figures are: they are read as of the last write."""

    model_config = ConfigDict(from_attributes=True)

    as_of: float = Field(
        description="Everything this worker answered before this time is counted, in seconds since 1970.",
        examples=[1795334850.125],
    )
    waiting: int = Field(description="Number of audit records of this worker that are not written yet.", examples=[0])

    @computed_field(description="`as_of` in RFC 3339.", examples=[_TIME])  # type: ignore[prop-decorator]
    @property
    def as_of_utc(self) -> str:
        return rfc3339(self.as_of)


class KindOut(BaseModel):
    """Figures of one kind. All are exact except the quantiles, which are never below the value at their rank (the
    smallest that at least this share of the positions do not exceed) and at most 2 % above it. With by=cause, figures
    that are not measured per cause are left out."""

    count: int = Field(description="Number of positions where the kind was measured.", examples=[120])
    unmeasured: int | None = Field(
        None, description="Number of positions where the kind could not be measured.", examples=[0]
    )
    mean: float | None = Field(
        description="Mean leaked probability, 0 to 1; null without a position.", examples=[0.0049]
    )
    max: float | None = Field(
        description="Highest leaked probability, 0 to 1; null without a position.", examples=[0.63]
    )
    p50: float | None = Field(description="Median of the leaked probability, 0 to 1.", examples=[0.0011])
    p95: float | None = Field(description="95th percentile of the leaked probability, 0 to 1.", examples=[0.02])
    p99: float | None = Field(description="99th percentile of the leaked probability, 0 to 1.", examples=[0.08])
    p999: float | None = Field(description="99.9th percentile of the leaked probability, 0 to 1.", examples=[0.3])
    flips: int | None = Field(
        None, description="Number of positions whose top move the mistake would have changed.", examples=[2]
    )
    mean_kl: float | None = Field(
        None, description="Mean divergence from the correct policy where it is finite, in nats.", examples=[0.006]
    )
    infinite_kl: int | None = Field(
        None, description="Number of positions where a legal move would have had no probability.", examples=[0]
    )


class GroupOut(BaseModel):
    """Positions of one group."""

    positions: int = _POSITIONS
    share: float | None = Field(
        None,
        description="With by=cause: this cause's share of all `raw` mass, 0 to 1; the rest is below the threshold.",
        examples=[0.41],
    )
    kinds: dict[str, KindOut] = _KINDS


class ModelLeakageOut(BaseModel):
    """Figures of one network; `raw`, `unnormalised` and `unmirrored` mean nothing if it was trained with the mask."""

    digest: str = MODEL_DIGEST
    positions: int = _POSITIONS
    trained_with_mask: bool = TRAINED_WITH_MASK
    kinds: dict[str, KindOut] = _KINDS
    since: int | None = Field(
        None,
        description="With since or until: start of the counted span, in seconds since 1970.",
        examples=[1795334400],
    )
    since_utc: str | None = Field(None, description="`since` in RFC 3339.", examples=[_TIME])
    until: int | None = Field(
        None, description="End of the counted span, in seconds since 1970.", examples=[1795338000]
    )
    until_utc: str | None = Field(None, description="`until` in RFC 3339.", examples=[_TIME])
    by: dict[str, dict[str, GroupOut]] | None = Field(None, description="With `by`: dimension, then group.")


class LeakageFiguresOut(BaseModel):
    """Figures of all networks."""

    models: dict[str, ModelLeakageOut] = Field(description="By the name of the network.")
    freshness: FreshnessOut = _FRESHNESS


class BucketOut(BaseModel):
    """One span of time."""

    start: int = Field(description="Its start, in seconds since 1970.", examples=[1795334400])
    seconds: int = Field(description="Its length, in seconds.", examples=[3600])
    positions: int = _POSITIONS
    kinds: dict[str, KindOut] = _KINDS

    @computed_field(description="`start` in RFC 3339.", examples=[_TIME])  # type: ignore[prop-decorator]
    @property
    def start_utc(self) -> str:
        return rfc3339(self.start)


class ModelHistoryOut(BaseModel):
    """Figures of one network over time."""

    digest: str = MODEL_DIGEST
    trained_with_mask: bool = TRAINED_WITH_MASK
    buckets: list[BucketOut] = Field(description="In order of time; spans without a position are left out.")


class HistoryOut(BaseModel):
    """Figures of all networks over time."""

    models: dict[str, ModelHistoryOut] = Field(description="By the name of the network.")
    freshness: FreshnessOut = _FRESHNESS


class FigureOut(BaseModel):
    """One kind for one position."""

    model_config = ConfigDict(from_attributes=True)

    leaked: float | None = Field(
        description="Probability that illegal moves would get, 0 to 1; null if it cannot be measured.",
        examples=[0.0031],
    )
    flipped: bool = Field(description="Whether the mistake would have changed the top move.", examples=[False])
    kl: float | None = Field(
        description="Divergence from the correct policy, in nats; null where it is infinite or not measured.",
        examples=[0.0031],
    )


class AuditedOut(BaseModel):
    """An audited position. Fields that an older version did not store are null."""

    model_config = ConfigDict(from_attributes=True)

    fen: str = Field(description="The position.", examples=[FEN])
    chess960: bool = Field(description="Whether its castling is Chess960's.", examples=[False])
    model: str = Field(description="Name of the network that answered.", examples=["maia-1500"])
    digest: str = MODEL_DIGEST
    trained_with_mask: bool = TRAINED_WITH_MASK
    time: float = Field(description="When it was answered, in seconds since 1970.", examples=[1795334850.125])
    turn: str = TURN
    phase: str | None = Field(description="`opening`, `middlegame` or `endgame`.", examples=["opening"])
    in_check: bool | None = Field(description="Whether the side to move is in check.", examples=[False])
    legal_moves: int = Field(description="Number of legal moves.", examples=[20])
    elo: float | None = Field(
        description="Rating of the side to move in Elo points, if one was given.", examples=[1500.0]
    )
    raw: float | None = Field(
        description="Probability that plain softmax gives to illegal moves; null if it cannot be measured.",
        examples=[0.0031],
    )
    multiplied: float = Field(
        description="Probability that softmax(logits * mask) gives to illegal moves.", examples=[0.91]
    )
    served: float = Field(description="Probability that the answer gave to illegal moves; always 0.", examples=[0.0])
    kinds: dict[str, FigureOut] = Field(
        validation_alias=AliasChoices("figures", "kinds"), description=_KINDS.description
    )
    causes: dict[str, float] = Field(
        description="`raw` mass by cause, of moves above the threshold: probabilities.", examples=[{"blocked": 0.002}]
    )
    illegal: list[IllegalMoveOut] = Field(description="Illegal moves that plain softmax gives most, heaviest first.")

    @computed_field(description="`time` in RFC 3339.", examples=[_TIME])  # type: ignore[prop-decorator]
    @property
    def time_utc(self) -> str:
        return rfc3339(self.time)


class WorstOut(BaseModel):
    """The positions that leak most."""

    positions: list[AuditedOut] = Field(description="Worst first.")
    freshness: FreshnessOut = _FRESHNESS


class PositionsOut(BaseModel):
    """A page of audited positions."""

    positions: list[AuditedOut] = Field(description="Newest first.")
    next: str | None = Field(description="The `cursor` of the next page; null after the last.", examples=["4711"])
    freshness: FreshnessOut = _FRESHNESS
