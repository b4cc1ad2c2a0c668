"""The summary of an audit: cells by model and group, the worst positions, and thresholds on them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from movemask.audit.cells import ALL, CAUSE, QUANTILES, Cell, Key
from movemask.audit.files import Folder
from movemask.audit.quantiles import Each, exact
from movemask.audit.tally import Tally
from movemask.errors import AuditError
from movemask.leakage.kinds import KINDS, MASK_BLIND, RAW
from movemask.leakage.traits import DIMENSIONS, groups


@dataclass(slots=True)
class ModelSummary:
    """The figures of one network."""

    name: str
    digest: str
    trained_with_mask: bool
    positions: int = 0
    cells: dict[Key, Cell] = field(default_factory=dict)
    worst: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # rows of the table, by kind

    def of(self, kind: str, dimension: str = ALL, group: str = "") -> Cell:
        """A cell; an empty one if it has no positions."""
        return self.cells.get(Key(kind, dimension, group), Cell())

    def groups(self, dimension: str) -> list[str]:
        """The groups that have positions, in natural order; causes by mass."""
        present = {key.group for key in self.cells if key.dimension == dimension}
        if dimension == CAUSE:
            return sorted(present, key=lambda group: -self.of(RAW, CAUSE, group).sum)
        return [group for group in groups(dimension) if group in present]

    def as_json(self) -> dict[str, Any]:
        """The network's entry in `summary.json`."""
        kinds = [kind for kind in KINDS if Key(kind, ALL, "") in self.cells]
        by: dict[str, Any] = {}
        for dimension in DIMENSIONS:
            by[dimension] = {
                group: {kind: self.of(kind, dimension, group).figures() for kind in kinds}
                for group in self.groups(dimension)
            }
        total = self.of(RAW).sum
        by[CAUSE] = {
            group: {
                "share": self.of(RAW, CAUSE, group).sum / total if total else None,
                RAW: self.of(RAW, CAUSE, group).mass_figures(),
            }
            for group in self.groups(CAUSE)
        }
        return {
            "digest": self.digest,
            "trained_with_mask": self.trained_with_mask,
            "positions": self.positions,
            "kinds": {kind: self.of(kind).figures() for kind in kinds},
            "by": by,
            "worst": self.worst,
        }


def summarised(
    tally: Tally, groups: Sequence[Sequence[Folder]], names: Sequence[str], each: Each = map
) -> list[ModelSummary]:
    """The networks of a tally in the order of `names`, with exact quantiles of the tables that it is of, in groups."""
    cells = exact(groups, {name: model.cells for name, model in tally.models.items()}, each)
    return [
        ModelSummary(name, model.digest, model.trained_with_mask, model.positions, cells[name], model.worst)
        for name, model in sorted(tally.models.items(), key=lambda item: names.index(item[0]))
    ]


_STATISTICS = ("mean", "max", *QUANTILES, "mean_kl", "flips", "infinite_kl")


@dataclass(frozen=True, slots=True)
class Threshold:
    """`KIND.STATISTIC=VALUE`: a check fails if the statistic is above the value."""

    kind: str
    statistic: str
    value: float

    @classmethod
    def read(cls, text: str) -> Threshold:
        """From its text; raises AuditError that names it."""
        found = re.fullmatch(r"([a-z0-9_]+)\.([a-z0-9_]+)=([-+.e0-9]+)", text.strip())
        try:
            value = math.nan if found is None else float(found[3])
            if found is None or found[1] not in KINDS or found[2] not in _STATISTICS or not math.isfinite(value):
                raise ValueError
            return cls(found[1], found[2], value)
        except ValueError:
            raise AuditError(
                f"--fail-above {text!r}: write KIND.STATISTIC=VALUE, such as raw.p99=0.1; "
                f"kinds: {', '.join(KINDS)}; statistics: {', '.join(_STATISTICS)}"
            ) from None

    def __str__(self) -> str:
        return f"{self.kind}.{self.statistic}={self.value:g}"

    def applies(self, model: ModelSummary) -> bool:
        """Whether the kind means anything for the network."""
        return not (model.trained_with_mask and self.kind in MASK_BLIND)

    def found(self, model: ModelSummary) -> float | None:
        """The statistic; None if any position could not be measured, inf for the mean of divergences that are."""
        cell = model.of(self.kind)
        if cell.unmeasured or not cell.count:
            return None
        if self.statistic == "mean_kl" and cell.infinite:
            return math.inf
        return float(cell.figures()[self.statistic])

    def exceeded(self, model: ModelSummary) -> bool:
        """Whether the check fails for the network: the statistic is above the value, or could not be measured."""
        found = self.found(model)
        return self.applies(model) and (found is None or found > self.value)


def checked(thresholds: Iterable[Threshold], kinds: Sequence[str]) -> None:
    """Raises AuditError for a threshold on a kind that is not measured: it would never fail."""
    for threshold in thresholds:
        if threshold.kind not in kinds:
            raise AuditError(f"--fail-above {threshold}: {threshold.kind} is not among --kinds {','.join(kinds)}")
