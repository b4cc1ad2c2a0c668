"""The ledger's figures over time, and its positions."""

from __future__ import annotations

from pydantic import Field

from movemask.schemas.answers import FigureOut, IllegalMoveOut, TrainedWithMask
from movemask.schemas.shapes import ByName, Items, Out

_OTHERS = "Other files that have answered under this name, the latest first; `digest` selects one."


class KindOut(Out):
    """Figures of one kind. All are exact except the quantiles. A quantile is never below its exact value (the smallest
    that at least this share of the positions do not exceed), and at most 2 % above it. With by=cause, figures that are
    not measured per cause are left out."""

    count: int = Field(description="Number of positions where the kind was measured.")
    unmeasured: int | None = Field(
        None, description="Number of positions where the kind could not be measured."
    )
    mean: float | None = Field(
        description="Mean leaked probability, 0 to 1; null without positions."
    )
    max: float | None = Field(
        description="Highest leaked probability, 0 to 1; null without positions."
    )
    p50: float | None = Field(description="Median of the leaked probability, 0 to 1.")
    p95: float | None = Field(description="95th percentile of the leaked probability, 0 to 1.")
    p99: float | None = Field(description="99th percentile of the leaked probability, 0 to 1.")
    p999: float | None = Field(description="99.9th percentile of the leaked probability, 0 to 1.")
    flips: int | None = Field(
        None, description="Number of positions whose top move the mistake would have changed."
    )
    mean_kl: float | None = Field(
        None, description="Mean divergence from the correct policy where finite, in nats."
    )
    infinite_kl: int | None = Field(
        None, description="Number of positions where a legal move would have got 0."
    )


class GroupOut(Out):
    """Positions of one group."""

    positions: int = Field(description="Number of positions.")
    share: float | None = Field(None, description="With by=cause: share of all `raw` mass, 0 to 1.")
    kinds: ByName[KindOut] = Field(
        description="Figures by kind of leakage; docs/leakage.md says what each is."
    )


class ModelLeakageOut(Out):
    """Figures of one network. `raw`, `unnormalised` and `unmirrored` mean nothing if it was trained with the mask."""

    digest: str = Field(description="SHA-256 of the network's file.")
    other_digests: Items[str] = Field(description=_OTHERS)
    positions: int = Field(description="Number of positions.")
    trained_with_mask: TrainedWithMask
    kinds: ByName[KindOut] = Field(
        description="Figures by kind of leakage; docs/leakage.md says what each is."
    )
    since: int | None = Field(None, description="Start of the counted span, in seconds since 1970.")
    since_utc: str | None = Field(None, description="`since` in RFC 3339.")
    until: int | None = Field(None, description="End of the counted span, in seconds since 1970.")
    until_utc: str | None = Field(None, description="`until` in RFC 3339.")
    by: ByName[ByName[GroupOut]] | None = Field(
        None, description="With `by`: dimension, then group."
    )


class LeakageFiguresOut(Out):
    """Figures of all networks."""

    models: ByName[ModelLeakageOut] = Field(description="By the name of the network.")


class BucketOut(Out):
    """One span of time."""

    start: int = Field(description="Start of the span, in seconds since 1970.")
    seconds: int = Field(description="Length of the span, in seconds.")
    positions: int = Field(description="Number of positions.")
    kinds: ByName[KindOut] = Field(
        description="Figures by kind of leakage; docs/leakage.md says what each is."
    )
    start_utc: str = Field(description="`start` in RFC 3339.")


class ModelHistoryOut(Out):
    """Figures of one network over time."""

    digest: str = Field(description="SHA-256 of the network's file.")
    other_digests: Items[str] = Field(description=_OTHERS)
    trained_with_mask: TrainedWithMask
    buckets: Items[BucketOut] = Field(
        description="In order of time; spans without positions are left out."
    )


class HistoryOut(Out):
    """Figures of all networks over time."""

    models: ByName[ModelHistoryOut] = Field(description="By the name of the network.")


class StoredPositionOut(Out):
    """A recorded position."""

    fen: str = Field(description="The position, as in the answer.")
    chess960: bool = Field(description="Whether castling is as in Chess960.")
    model: str = Field(description="Name of the network that answered.")
    digest: str = Field(description="SHA-256 of the network's file.")
    trained_with_mask: TrainedWithMask
    time: float = Field(description="When it was answered, in seconds since 1970.")
    turn: str = Field(description="The side to move.")
    phase: str = Field(description="`opening`, `middlegame` or `endgame`.")
    in_check: bool = Field(description="Whether the side to move is in check.")
    legal_moves: int = Field(description="Number of legal moves.")
    elo: float | None = Field(
        description="Rating of the side to move in Elo points, if one was given."
    )
    raw: float | None = Field(
        description="Probability that plain softmax gives to illegal moves; null if unmeasured."
    )
    multiplied: float = Field(
        description="Probability that softmax(logits * mask) gives to illegal moves. A constant added to all logits "
        "changes it: do not compare it between networks."
    )
    served: float = Field(
        description="Probability that the answer gave to illegal moves; always 0."
    )
    kinds: ByName[FigureOut] = Field(
        description="Figures by kind of leakage; docs/leakage.md says what each is."
    )
    causes: ByName[float] = Field(
        description="`raw` by cause, on moves above the threshold, as probabilities."
    )
    illegal: Items[IllegalMoveOut] = Field(
        description="The most probable illegal moves, in order of probability."
    )
    time_utc: str = Field(description="`time` in RFC 3339.")


class WorstOut(Out):
    """The positions that leak most."""

    positions: Items[StoredPositionOut] = Field(description="Worst first.")


class PositionsOut(Out):
    """A page of recorded positions."""

    positions: Items[StoredPositionOut] = Field(description="Newest first.")
    next: str | None = Field(description="The `cursor` of the next page; null on the last page.")
