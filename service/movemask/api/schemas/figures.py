"""Writes the store's figures as the JSON that `leakage` describes."""

from __future__ import annotations

from typing import Any

from movemask.api.schemas.leakage import BucketOut, GroupOut, KindOut, ModelHistoryOut, ModelLeakageOut
from movemask.api.times import rfc3339
from movemask.leakage.kinds import RAW
from movemask.store.cells import CAUSE
from movemask.store.figures import Bucket, Kinds, ModelFigures, positions_of


def model_figures_out(model: ModelFigures, by: str | None = None) -> ModelLeakageOut:
    """The JSON of one model's figures."""
    out: dict[str, Any] = {}
    if model.covered is not None:
        out["since"], out["until"] = model.covered
        out["since_utc"], out["until_utc"] = map(rfc3339, model.covered)
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
