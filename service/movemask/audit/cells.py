"""Cells: figures of one kind over one group of positions, which merge across time, processes and machines."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from movemask.audit.sketch import Sketch, merged_sketches, sketches_of
from movemask.leakage.kinds import RAW
from movemask.leakage.traits import DIMENSIONS
from movemask.numeric.ragged import Float, Index, indptr_of, restricted, row_lengths, row_max

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
        return cells_of_rows(leaked, flipped, kl, np.array([0, len(leaked)], dtype=np.intp))[0]

    @classmethod
    def merged(cls, cells: Iterable[Cell]) -> Cell:
        """The cell of the positions of all these cells."""
        return merged_each([list(cells)])[0]

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


def cells_of_rows(leaked: Float, flipped: NDArray[np.bool_], kl: Float, indptr: Index) -> list[Cell]:
    """The cell of each row of positions `[N]`, `indptr` `[C + 1]`; arguments as in `Cell.of`."""
    known, finite = ~np.isnan(leaked), np.isfinite(kl)
    measured, bounds, kl_bounds = leaked[known], restricted(indptr, known), restricted(indptr, finite)
    columns = (
        row_lengths(bounds).tolist(),
        row_lengths(indptr - bounds).tolist(),
        row_lengths(restricted(indptr, flipped)).tolist(),
        row_lengths(restricted(indptr, np.isinf(kl))).tolist(),
        _row_fsum(measured, bounds),
        np.maximum(row_max(measured, bounds), 0.0).tolist(),
        _row_fsum(kl[finite], kl_bounds),
        sketches_of(measured, bounds),
    )
    return [Cell(*fields) for fields in zip(*columns, strict=True)]


def merged_each(groups: Sequence[Sequence[Cell]]) -> list[Cell]:
    """The merged cell of each group, all at once."""
    several = [parts for parts in groups if len(parts) != 1]
    sketches = iter(merged_sketches([[part.sketch for part in parts] for parts in several]))
    return [parts[0] if len(parts) == 1 else _merged(parts, next(sketches)) for parts in groups]


def _merged(parts: Sequence[Cell], merged_sketch: Sketch) -> Cell:
    return Cell(
        count=sum([part.count for part in parts]),
        unmeasured=sum([part.unmeasured for part in parts]),
        flips=sum([part.flips for part in parts]),
        infinite=sum([part.infinite for part in parts]),
        sum=math.fsum([part.sum for part in parts]),
        max=max([part.max for part in parts], default=0.0),
        kl=math.fsum([part.kl for part in parts]),
        sketch=merged_sketch,
    )


def _row_fsum(values: Float, indptr: Index) -> list[float]:
    every = values.tolist()
    return [math.fsum(every[start:end]) for start, end in pairwise(indptr.tolist())]


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
    groups = [
        (Key(kind, dimension, group), rows)
        for dimension, of_group in members.items()
        for group, rows in of_group.items()
        if len(rows)
    ]
    leaked, flipped, kl = columns
    everything = np.arange(len(leaked), dtype=np.intp)
    rows = np.concatenate([everything, *(rows for _, rows in groups)])
    indptr = indptr_of([len(everything), *(len(rows) for _, rows in groups)])
    keys = [Key(kind, ALL, ""), *(key for key, _ in groups)]
    return dict(zip(keys, cells_of_rows(leaked[rows], flipped[rows], kl[rows], indptr), strict=True))


def of_causes(masses: Mapping[str, Float]) -> dict[Key, Cell]:
    """The cells of causes; `masses` holds, by cause, the mass `[N]` in each position where it is above 0."""
    cells = {}
    for group, mass in masses.items():
        if len(mass):
            zeros = np.zeros(len(mass))
            cells[Key(RAW, CAUSE, group)] = Cell.of(mass, zeros.astype(np.bool_), zeros)
    return cells


def merged(parts: Iterable[Mapping[Key, Cell]]) -> dict[Key, Cell]:
    """The merged cells of all parts, by key."""
    groups: dict[Key, list[Cell]] = defaultdict(list)
    for part in parts:
        for key, cell in part.items():
            groups[key].append(cell)
    return dict(zip(groups, merged_each(list(groups.values())), strict=True))
