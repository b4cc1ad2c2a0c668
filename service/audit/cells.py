"""Cells: figures of one kind over one group of positions, which add up over time, processes and machines."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from service.audit.kinds import RAW
from service.audit.record import AuditRecord, Figure
from service.audit.sketch import Sketch
from service.audit.traits import DIMENSIONS

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
    """Figures of one kind: all but `sketch` exact.

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

    @classmethod
    def of(cls, figures: Sequence[Figure]) -> Cell:
        """The cell of these positions."""
        measured = [figure.leaked for figure in figures if figure.leaked is not None]
        return cls(
            count=len(measured),
            unmeasured=len(figures) - len(measured),
            flips=sum(figure.flipped for figure in figures),
            infinite=sum(figure.infinite for figure in figures),
            sum=math.fsum(measured),
            max=max(measured, default=0.0),
            kl=math.fsum(figure.kl for figure in figures if figure.kl is not None),
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
        """Within 1 %, and none above the maximum, whatever its bucket's middle."""
        found = {name: self.sketch.quantile(q) for name, q in QUANTILES.items()}
        return {name: None if value is None else float(np.minimum(value, self.max)) for name, value in found.items()}


def cells_of(records: Sequence[AuditRecord]) -> dict[Key, Cell]:
    """The cells that these positions are counted in."""
    figures: dict[Key, list[Figure]] = defaultdict(list)
    for record in records:
        groups = [(ALL, ""), *((dimension, record.traits.group(dimension)) for dimension in DIMENSIONS)]
        for kind, figure in record.leakage.figures.items():
            for dimension, group in groups:
                figures[Key(kind, dimension, group)].append(figure)
        for cause, mass in record.leakage.causes.items():
            figures[Key(RAW, CAUSE, cause.value)].append(Figure(mass))
    return {key: Cell.of(found) for key, found in figures.items()}


def merged(parts: Iterable[Mapping[Key, Cell]]) -> dict[Key, Cell]:
    """The cells of all."""
    found: dict[Key, list[Cell]] = defaultdict(list)
    for part in parts:
        for key, cell in part.items():
            found[key].append(cell)
    return {key: Cell.merged(cells) for key, cells in found.items()}
