"""The summary of an audit's table: cells by model and group, the worst positions, and thresholds on them."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from movemask.errors import AuditError
from movemask.leakage.causes import Cause
from movemask.leakage.kinds import KINDS, MASK_BLIND, MULTIPLIED, RAW
from movemask.leakage.traits import DIMENSIONS, groups
from movemask.store.cells import ALL, CAUSE, QUANTILES, Cell, Key, grouped, merged, of_causes
from movemask.tasks.bulk.columns import floats, members_of_table
from movemask.tasks.bulk.quantiles import exact

#: Kinds whose worst positions are shown.
SHOWN = (RAW, MULTIPLIED)

#: Positions shown for each of them.
WORST = 20

_AT_ONCE = 10_000  # rows


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


def summarised(file: Path) -> list[ModelSummary]:
    """The networks of a table in the order of their first rows, with exact quantiles; the table is read in batches."""
    models: dict[str, ModelSummary] = {}
    with pq.ParquetFile(file) as table:
        for batch in table.iter_batches(_AT_ONCE):
            rows = pa.Table.from_batches([batch])
            for name in pc.unique(rows["model"]).to_pylist():
                _add(models, name, rows.filter(pc.equal(rows["model"], name)))
    for name, cells in exact(file, {name: model.cells for name, model in models.items()}).items():
        models[name].cells = cells
    return list(models.values())


def _add(models: dict[str, ModelSummary], name: str, rows: pa.Table) -> None:
    if name not in models:
        models[name] = ModelSummary(name, rows["digest"][0].as_py(), rows["trained_with_mask"][0].as_py())
    model = models[name]
    model.positions += rows.num_rows
    model.cells = merged([model.cells, cells_of_table(rows)])
    for kind in SHOWN:
        if kind in rows.column_names:
            model.worst[kind] = _worst(kind, model.worst.get(kind, []), rows)


def cells_of_table(rows: pa.Table) -> dict[Key, Cell]:
    """The cells of the positions of a table, of one network."""
    members = members_of_table(rows)
    cells: dict[Key, Cell] = {}
    for kind in KINDS:
        if kind in rows.column_names:
            flipped = rows[f"{kind}_flipped"].to_numpy(zero_copy_only=False).astype(np.bool_)
            cells |= grouped(kind, (floats(rows[kind]), flipped, floats(rows[f"{kind}_kl"])), members)
    masses = {cause.value: floats(rows[f"cause_{cause.value}"]) for cause in Cause}
    return cells | of_causes({cause: mass[mass > 0] for cause, mass in masses.items()})


def _worst(kind: str, known: Sequence[dict[str, Any]], rows: pa.Table) -> list[dict[str, Any]]:
    """The worst of the known rows and of these, each position once, worst first."""
    leaked = np.nan_to_num(floats(rows[kind]), nan=-1.0)
    heaviest = np.argpartition(-leaked, min(5 * WORST, len(leaked)) - 1)[: 5 * WORST]  # positions may repeat
    columns = [name for name in rows.column_names if not name.startswith("cause_")]
    best: dict[str, dict[str, Any]] = {}
    for row in [*known, *rows.select(columns).take(pa.array(heaviest)).to_pylist()]:
        if row[kind] and (row["fen"] not in best or best[row["fen"]][kind] < row[kind]):
            best[row["fen"]] = row
    return heapq.nsmallest(WORST, best.values(), key=lambda row: (-row[kind], row["fen"]))


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
