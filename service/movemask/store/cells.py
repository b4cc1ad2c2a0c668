"""Cells: figures of one kind over one group of positions, which merge across time, processes and machines."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from movemask.leakage.kinds import KINDS, RAW
from movemask.leakage.record import AuditRecord, Figure
from movemask.leakage.traits import DIMENSIONS
from movemask.numeric.ragged import Float
from movemask.store.sketch import Sketch

#: The dimension with a single group, which holds every position.
ALL = "all"

#: The dimension of the causes; a position counts under each cause of some of its `raw` mass.
CAUSE = "cause"

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}


class Key(NamedTuple):
    """Identifies a cell: a kind, and a group of a dimension."""

    kind: str
    dimension: str
    group: str


@dataclass(frozen=True, slots=True)
class Cell:
    """Figures of one kind; all but `sketch` are exact.

    count, unmeasured : positions that were measured, and that could not be
    flips, infinite : measured positions where the mistake changes the top move, and where the divergence is infinite
    sum, max : of what leaked
    kl : sum of the finite divergences, in nats
    exact : exact quantiles by name, if known
    """

    count: int = 0
    unmeasured: int = 0
    flips: int = 0
    infinite: int = 0
    sum: float = 0.0
    max: float = 0.0
    kl: float = 0.0
    sketch: Sketch = field(default_factory=lambda: Sketch.of([]))
    exact: Mapping[str, float | None] | None = None

    @classmethod
    def of(cls, leaked: Float, flipped: NDArray[np.bool_], kl: Float) -> Cell:
        """The cell of positions `[N]`; `leaked` is NaN where not measured, `kl` inf where infinite."""
        known = ~np.isnan(leaked)
        measured = leaked if known.all() else leaked[known]
        finite = np.isfinite(kl)
        return cls(
            count=len(measured),
            unmeasured=len(leaked) - len(measured),
            flips=int(flipped.sum()),
            infinite=int(np.isinf(kl).sum()),
            sum=math.fsum(measured.tolist()),
            max=float(measured.max(initial=0.0)),
            kl=math.fsum(kl[finite].tolist()),
            sketch=Sketch.of(measured),
        )

    @classmethod
    def merged(cls, cells: Iterable[Cell]) -> Cell:
        """The cell of the positions of all these cells."""
        parts = list(cells)
        if len(parts) == 1:
            return parts[0]
        return cls(
            count=sum(part.count for part in parts),
            unmeasured=sum(part.unmeasured for part in parts),
            flips=sum(part.flips for part in parts),
            infinite=sum(part.infinite for part in parts),
            sum=math.fsum(part.sum for part in parts),
            max=max((part.max for part in parts), default=0.0),
            kl=math.fsum(part.kl for part in parts),
            sketch=Sketch.merged(part.sketch for part in parts),
        )

    @property
    def positions(self) -> int:
        """Positions, measured or not."""
        return self.count + self.unmeasured

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.count else None

    @property
    def highest(self) -> float | None:
        """The maximum; None if nothing was measured."""
        return self.max if self.count else None

    @property
    def mean_kl(self) -> float | None:
        """Mean of the finite divergences; None if there are none."""
        finite = self.count - self.infinite
        return self.kl / finite if finite else None

    def quantiles(self) -> dict[str, float | None]:
        """Exact where they are known; else never below the value at their rank, at most 2 % above it, and none above
        the maximum."""
        if self.exact is not None:
            return dict(self.exact)
        bounds = {name: self.sketch.quantile(q) for name, q in QUANTILES.items()}
        return {name: None if value is None else float(np.minimum(value, self.max)) for name, value in bounds.items()}

    def mass_figures(self) -> dict[str, Any]:
        """The figures of a cause, by name: a part of the `raw` mass of a position has no top move and no divergence."""
        return {"count": self.count, "mean": self.mean, "max": self.highest, **self.quantiles()}

    def figures(self) -> dict[str, Any]:
        """Figures by name, as reported."""
        return {
            "count": self.count,
            "unmeasured": self.unmeasured,
            **self.mass_figures(),
            "flips": self.flips,
            "mean_kl": self.mean_kl,
            "infinite_kl": self.infinite,
        }


def cells_of(records: Sequence[AuditRecord]) -> dict[Key, Cell]:
    """The cells of these positions."""
    groups = [record.traits.groups for record in records]
    members = members_of(groups)
    cells: dict[Key, Cell] = {}
    for kind in KINDS:
        rows = [row for row, record in enumerate(records) if kind in record.leakage.figures]
        if rows:
            columns = _columns([records[row].leakage.figures[kind] for row in rows])
            everywhere = len(rows) == len(records)
            cells |= grouped(kind, columns, members if everywhere else members_of([groups[row] for row in rows]))
    masses: dict[str, list[float]] = defaultdict(list)
    for record in records:
        for cause, mass in record.leakage.causes.items():
            masses[cause.value].append(mass)
    if any(math.isnan(mass) for of_cause in masses.values() for mass in of_cause):
        raise ValueError("a cause's mass is NaN")
    return cells | of_causes({group: np.array(mass) for group, mass in masses.items()})


#: Of positions `[N]`: what leaked, whether the top move changed, the divergence; the arguments of `Cell.of`.
Columns = tuple[Float, NDArray[np.bool_], Float]

#: By dimension and group, the rows of its positions.
Members = Mapping[str, Mapping[str, NDArray[np.intp]]]


def members_of(groups: Sequence[Sequence[str]]) -> Members:
    """The members of each group; `groups` holds, for each position, its group in each of DIMENSIONS."""
    members = {}
    for dimension, group_of_row in zip(DIMENSIONS, zip(*groups, strict=True), strict=True):
        rows_of: dict[str, list[int]] = defaultdict(list)
        for row, group in enumerate(group_of_row):
            rows_of[group].append(row)
        members[dimension] = {group: np.array(rows, dtype=np.intp) for group, rows in rows_of.items()}
    return members


def grouped(kind: str, columns: Columns, members: Members) -> dict[Key, Cell]:
    """The cells of one kind: of all positions `[N]`, and of each group."""
    leaked, flipped, kl = columns
    cells = {Key(kind, ALL, ""): Cell.of(leaked, flipped, kl)}
    for dimension, groups in members.items():
        for group, rows in groups.items():
            if len(rows):
                cells[Key(kind, dimension, group)] = Cell.of(leaked[rows], flipped[rows], kl[rows])
    return cells


def of_causes(masses: Mapping[str, Float]) -> dict[Key, Cell]:
    """The cells of causes; `masses` holds, by cause, the mass `[N]` in each position where it is above 0."""
    cells = {}
    for group, mass in masses.items():
        if len(mass):
            zeros = np.zeros(len(mass))
            cells[Key(RAW, CAUSE, group)] = Cell.of(mass, zeros.astype(np.bool_), zeros)
    return cells


def _columns(figures: Sequence[Figure]) -> Columns:
    """Single figures as the arguments of `Cell.of`."""
    nan, inf = math.nan, math.inf
    leaked = np.array([nan if figure.leaked is None else figure.leaked for figure in figures])
    kl = np.array([(nan if f.leaked is None else inf) if f.kl is None else f.kl for f in figures])
    unmeasured = sum(figure.leaked is None for figure in figures)
    if np.isnan(leaked).sum() != unmeasured or np.isnan(kl).sum() > unmeasured:
        raise ValueError("a figure is NaN; what is not measured is None")
    return leaked, np.array([figure.flipped for figure in figures], dtype=np.bool_), kl


def merged(parts: Iterable[Mapping[Key, Cell]]) -> dict[Key, Cell]:
    """The merged cells of all parts, by key."""
    groups: dict[Key, list[Cell]] = defaultdict(list)
    for part in parts:
        for key, cell in part.items():
            groups[key].append(cell)
    return {key: Cell.merged(cells) for key, cells in groups.items()}
