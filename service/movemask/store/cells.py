"""Cells: figures of one kind over one group of positions, which add up over time, processes and machines."""

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

#: The dimension of the one group that holds every position.
ALL = "all"

#: The dimension of the causes; a position is counted under each cause that took some of its `raw` mass.
CAUSE = "cause"

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}


class Key(NamedTuple):
    """Which cell: a kind, and a group of a dimension."""

    kind: str
    dimension: str
    group: str


@dataclass(frozen=True, slots=True)
class Cell:
    """Figures of one kind: all but `sketch` exact. `exact` holds the quantiles of whoever has every value, by name.

    `count` positions were measured and `unmeasured` could not be; of those measured the mistake changed the top move in
    `flips` and has an infinite divergence in `infinite`; `kl` is the sum of the finite ones, in nats.
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
        """The cell of positions `[N]`: NaN in `leaked` where not measured, inf in `kl` where that is infinite."""
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
        """The cell of all that any of these counts."""
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
        """Positions that were looked at, measured or not."""
        return self.count + self.unmeasured

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.count else None

    @property
    def highest(self) -> float | None:
        """The maximum; None of nothing."""
        return self.max if self.count else None

    @property
    def mean_kl(self) -> float | None:
        """Mean divergence where it is finite; None where it never is."""
        finite = self.count - self.infinite
        return self.kl / finite if finite else None

    def quantiles(self) -> dict[str, float | None]:
        """Exact where they are known; else never below the value at their rank, at most 2 % above it, and none above
        the maximum."""
        if self.exact is not None:
            return dict(self.exact)
        found = {name: self.sketch.quantile(q) for name, q in QUANTILES.items()}
        return {name: None if value is None else float(np.minimum(value, self.max)) for name, value in found.items()}

    def mass_figures(self) -> dict[str, Any]:
        """The figures of a cause, by name: a part of the `raw` mass of a position has no top move and no divergence."""
        return {"count": self.count, "mean": self.mean, "max": self.highest, **self.quantiles()}

    def figures(self) -> dict[str, Any]:
        """Figures by name, as they are reported."""
        return {
            "count": self.count,
            "unmeasured": self.unmeasured,
            **self.mass_figures(),
            "flips": self.flips,
            "mean_kl": self.mean_kl,
            "infinite_kl": self.infinite,
        }


def cells_of(records: Sequence[AuditRecord]) -> dict[Key, Cell]:
    """The cells that these positions are counted in."""
    members = members_of(zip(*(record.traits.groups for record in records), strict=True))
    found: dict[Key, Cell] = {}
    for kind in KINDS:
        rows = [row for row, record in enumerate(records) if kind in record.leakage.figures]
        if rows:
            columns = _columns([records[row].leakage.figures[kind] for row in rows])
            found |= grouped(
                kind, columns, members if len(rows) == len(records) else _among(members, rows, len(records))
            )
    masses: dict[str, list[float]] = defaultdict(list)
    for record in records:
        for cause, mass in record.leakage.causes.items():
            masses[cause.value].append(mass)
    if any(math.isnan(mass) for of_cause in masses.values() for mass in of_cause):
        raise ValueError("a cause's mass is NaN")
    return found | of_causes({group: np.array(mass) for group, mass in masses.items()})


#: Of positions `[N]`: what leaked, whether the top move changed, the divergence; as `Cell.of` takes them.
Columns = tuple[Float, NDArray[np.bool_], Float]

#: By dimension and group, the rows of the positions that are counted there.
Members = Mapping[str, Mapping[str, NDArray[np.intp]]]


def members_of(groups: Iterable[Sequence[str]]) -> Members:
    """From the groups of the positions `[N]`, for each of DIMENSIONS in turn."""
    found = {}
    for dimension, of_each in zip(DIMENSIONS, groups, strict=True):
        rows: dict[str, list[int]] = defaultdict(list)
        for row, group in enumerate(of_each):
            rows[group].append(row)
        found[dimension] = {group: np.array(own, dtype=np.intp) for group, own in rows.items()}
    return found


def _among(members: Members, rows: Sequence[int], count: int) -> Members:
    """The same groups, of some of the rows alone, by their places among those."""
    places = np.full(count, -1, dtype=np.intp)
    places[rows] = np.arange(len(rows))
    return {
        dimension: {group: places[own][places[own] >= 0] for group, own in groups.items()}
        for dimension, groups in members.items()
    }


def grouped(kind: str, columns: Columns, members: Members) -> dict[Key, Cell]:
    """The cells of one kind: of all positions `[N]`, and of each group."""
    leaked, flipped, kl = columns
    found = {Key(kind, ALL, ""): Cell.of(leaked, flipped, kl)}
    for dimension, groups in members.items():
        for group, rows in groups.items():
            if len(rows):
                found[Key(kind, dimension, group)] = Cell.of(leaked[rows], flipped[rows], kl[rows])
    return found


def of_causes(masses: Mapping[str, Float]) -> dict[Key, Cell]:
    """The cells of causes, each with the masses of the positions `[N]` that it took some in."""
    found = {}
    for group, mass in masses.items():
        if len(mass):
            nothing = np.zeros(len(mass))
            found[Key(RAW, CAUSE, group)] = Cell.of(mass, nothing.astype(np.bool_), nothing)
    return found


def _columns(figures: Sequence[Figure]) -> Columns:
    """What `Cell.of` takes, of single figures."""
    nan, inf = math.nan, math.inf
    leaked = np.array([nan if one.leaked is None else one.leaked for one in figures])
    kl = np.array([(nan if one.leaked is None else inf) if one.kl is None else one.kl for one in figures])
    unmeasured = sum(one.leaked is None for one in figures)
    if np.isnan(leaked).sum() != unmeasured or np.isnan(kl).sum() > unmeasured:
        raise ValueError("a figure is NaN; what is not measured is None")
    return leaked, np.array([one.flipped for one in figures], dtype=np.bool_), kl


def merged(parts: Iterable[Mapping[Key, Cell]]) -> dict[Key, Cell]:
    """The cells of all."""
    found: dict[Key, list[Cell]] = defaultdict(list)
    for part in parts:
        for key, cell in part.items():
            found[key].append(cell)
    return {key: Cell.merged(cells) for key, cells in found.items()}
