"""Cells: the figures of one kind of leakage over one group of positions.

Cells of different times, processes and machines can be added up. Their quantiles come from a sketch, DDSketch: a
histogram whose bins grow by a constant ratio, which bounds the relative error. Unlike DDSketch, `Cells` reports the
upper bound of a bin instead of its middle, so that a quantile is never too low.

Source: Masson, Rim & Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees",
PVLDB 12 (2019), doi:10.14778/3352063.3352135.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from movemask.leakage.causes import CAUSES
from movemask.leakage.groups import DIMENSIONS, groups
from movemask.leakage.kinds import RAW
from movemask.leakage.measure import Measured
from movemask.policy.ragged import Float, Index

#: The dimension with a single group, of all positions.
ALL = "all"

#: The dimension of causes. A position counts under each cause that has some of its `raw` mass.
CAUSE = "cause"

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}

#: Values below this count as 0; no probability so small changes a decision.
SMALLEST = 1e-15

#: Upper bound of a bin over that of the bin before it (gamma in DDSketch): quantiles are at most 2 % too high.
_RATIO = 1.02

#: Upper bounds of the bins, rising. Bin 0 holds values below SMALLEST; the last bin has no bound.
BOUNDS = np.array(
    [
        np.nextafter(SMALLEST, 0),
        *(SMALLEST * _RATIO ** np.arange(math.ceil(-math.log(SMALLEST, _RATIO)) + 1)).tolist(),
        np.inf,
    ]
)

#: A bin and its count are one number in the database: the bin in the high 16 bits, the count in the low 48.
_COUNT_BITS = 48


class CellKey(NamedTuple):
    """Identifies a cell: a kind, and a group of a dimension."""

    kind: str
    dimension: str
    group: str


#: All groups: first the group of all positions, then those of each dimension, in the order of `groups_of`. And
#: the index of each dimension's first group.
_GROUPS = [
    (ALL, ""),
    *((dimension, group) for dimension in DIMENSIONS for group in groups(dimension)),
]
_FIRST_OF = np.cumsum([1, *(len(groups(dimension)) for dimension in DIMENSIONS[:-1])])
_CAUSES = [CellKey(RAW, CAUSE, cause.value) for cause in CAUSES]


@dataclass(slots=True)
class Cell:
    """The figures of one kind over one group of positions.

    count, unmeasured : positions that were measured, and positions that could not be measured
    flips, infinite : measured positions where the mistake changes the top move, and with an infinite divergence
    sum, max : sum and maximum of the leakage; the maximum is None if nothing was measured
    kl : sum of the finite divergences, in nats
    quantiles : by name, None if nothing was measured, at most 2 % too high; all other figures are exact
    """

    count: int = 0
    unmeasured: int = 0
    flips: int = 0
    infinite: int = 0
    sum: float = 0.0
    kl: float = 0.0
    max: float | None = None
    quantiles: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(QUANTILES))

    @property
    def positions(self) -> int:
        """Number of positions, measured or not."""
        return self.count + self.unmeasured

    @property
    def mean(self) -> float | None:
        """Mean leakage of the measured positions; None if there are none."""
        return self.sum / self.count if self.count else None

    @property
    def mean_kl(self) -> float | None:
        """Mean of the finite divergences; None if there are none."""
        finite = self.count - self.infinite
        return self.kl / finite if finite else None

    def mass_figures(self) -> dict[str, Any]:
        """Returns the figures of a cause by name.

        A cause has part of a position's mass, so no top move and no divergence.
        """
        return {"count": self.count, "mean": self.mean, "max": self.max, **self.quantiles}

    def figures(self) -> dict[str, Any]:
        """Returns the figures of a kind by name, as the API reports them."""
        return {
            "count": self.count,
            "unmeasured": self.unmeasured,
            **self.mass_figures(),
            "flips": self.flips,
            "mean_kl": self.mean_kl,
            "infinite_kl": self.infinite,
        }


def rank_of(q: float, total: int) -> int:
    """Returns the rank of the `q` quantile among `total` sorted values, from 1: the nearest rank, rounded up."""
    return max(1, math.ceil(Fraction(str(q)) * total))  # in floats, 0.07 * 100 is more than 7


class Cells:
    """C cells as arrays. `cells[key]` is one of them.

    places : the index of each cell in the arrays, by key
    counts : int64 `[C, 4]`: count, unmeasured, flips, infinite
    sums : float64 `[C, 2]`: sum, kl
    max : float64 `[C]`
    bins, tallies : the histograms' bins that are not empty, and their counts, int64 `[K]`. The number of a bin is
        `place of the cell * len(BOUNDS) + bin`; the numbers rise.
    """

    #: The columns of a cell in the database, in the order of `of_rows` and `rows`.
    COLUMNS = (
        *CellKey._fields,
        "count",
        "unmeasured",
        "flips",
        "infinite",
        "sum",
        "kl",
        "max",
        "histogram",
    )

    def __init__(self, keys: Iterable[CellKey]) -> None:
        self.places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        size = len(self.places)
        self.counts = np.zeros((size, 4), dtype=np.int64)
        self.sums = np.zeros((size, 2))
        self.max = np.zeros(size)
        self.bins = np.zeros(0, dtype=np.intp)
        self.tallies = np.zeros(0, dtype=np.int64)

    def keys(self) -> Iterable[CellKey]:
        """Returns the keys, so that `dict(cells)` is every cell by its key."""
        return self.places.keys()

    def __getitem__(self, key: CellKey) -> Cell:
        place = self.places[key]
        count, unmeasured, flips, infinite = self.counts[place].tolist()
        total, kl = self.sums[place].tolist()
        cell = Cell(count, unmeasured, flips, infinite, total, kl)
        if count:
            cell.max = float(self.max[place])
            cell.quantiles = {
                name: self._quantile(place, rank_of(q, count)) for name, q in QUANTILES.items()
            }
        return cell

    def _quantile(self, place: int, rank: int) -> float:
        """Returns the value at a rank of a cell: never too low, at most 2 % too high, and not above the maximum.

        A threshold that the true value exceeds is therefore always noticed.
        """
        bins, tallies = self._bins_of(place)
        bin_of_rank = bins[np.searchsorted(np.cumsum(tallies), rank)]
        return min(float(BOUNDS[bin_of_rank]), float(self.max[place])) if bin_of_rank else 0.0

    def _bins_of(self, place: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Returns the bins of a cell that are not empty, rising, and their counts."""
        first, end = np.searchsorted(self.bins, [place * len(BOUNDS), (place + 1) * len(BOUNDS)])
        return self.bins[first:end] % len(BOUNDS), self.tallies[first:end]

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[Any]]) -> Cells:
        """Returns cells from rows of the database with COLUMNS. Rows with the same key are added up."""
        keys = [CellKey(*row[:3]) for row in rows]
        cells = cls(keys)
        if rows:
            places = np.array([cells.places[key] for key in keys])
            np.add.at(cells.counts, places, np.array([row[3:7] for row in rows], dtype=np.int64))
            np.add.at(cells.sums, places, np.array([row[7:9] for row in rows]))
            np.maximum.at(cells.max, places, np.array([row[9] for row in rows]))
            packed = np.frombuffer(b"".join([row[10] for row in rows]), dtype="<u8")
            places = np.repeat(places, [len(row[10]) // 8 for row in rows])
            bins, counts = packed >> _COUNT_BITS, packed & ((1 << _COUNT_BITS) - 1)
            cells.bins, same = np.unique(
                places * len(BOUNDS) + bins.astype(np.intp), return_inverse=True
            )
            cells.tallies = np.bincount(same, counts, len(cells.bins)).astype(np.int64)
        return cells

    def joined(self, others: Cells) -> Cells:
        """Returns the cells of both; cells with the same key are added up."""
        return Cells.of_rows([*self.rows(), *others.rows()])

    def histogram(self, key: CellKey) -> list[tuple[float, int]]:
        """Returns the bins of a cell that are not empty, rising: their upper bounds and their
        counts.
        """
        place = self.places[key]
        bins, tallies = self._bins_of(place)
        bounds = np.minimum(BOUNDS[bins], self.max[place])
        return list(zip(bounds.tolist(), tallies.tolist(), strict=True))

    def rows(self) -> list[tuple[Any, ...]]:
        """Returns rows for the database, with COLUMNS."""
        packed = (self.bins % len(BOUNDS)).astype("<u8") << _COUNT_BITS | self.tallies.astype("<u8")
        ends = np.searchsorted(self.bins, np.arange(len(self.max) + 1) * len(BOUNDS)).tolist()
        numbers = zip(
            self.counts.tolist(), self.sums.tolist(), self.max.tolist(), pairwise(ends), strict=True
        )
        return [
            (*key, *counts, *sums, highest, packed[start:end].tobytes())
            for key, (counts, sums, highest, (start, end)) in zip(self.places, numbers, strict=True)
        ]


class _Entries(NamedTuple):
    """E entries, each of which counts a position in a cell.

    cells : intp `[E]`, the number of the cell
    bins : intp `[E]`, the histogram's bin of the leakage
    leaked, kl : float64 `[E]`
    known, flipped : bool `[E]`, whether the leakage was measured, and whether the mistake changes the top move
    """

    cells: Index
    bins: Index
    leaked: Float
    kl: Float
    known: NDArray[np.bool_]
    flipped: NDArray[np.bool_]


def cells_of(measured: Mapping[str, Measured], by_cause: Float, in_groups: Index) -> Cells:
    """Returns the cells of B positions.

    A position counts in `1 + len(DIMENSIONS)` cells of each kind, and in one for each cause of its mass. Cells without
    a position are left out. Raises ValueError for a leakage or a divergence that is no number or is negative.

    Parameters
    ----------
    measured : by kind of leakage, arrays `[B]`
    by_cause : float64 `[B, len(CAUSES)]`, the `raw` mass of each cause
    in_groups : intp `[len(DIMENSIONS), B]`, from `leakage.groups.groups_of`
    """
    keys = [*(CellKey(kind, *group) for kind in measured for group in _GROUPS), *_CAUSES]
    entries = _entries(list(measured.values()), by_cause, in_groups)
    used = np.flatnonzero(np.bincount(entries.cells, minlength=len(keys)))
    cells = Cells(keys[number] for number in used.tolist())
    _fill(cells, entries._replace(cells=np.searchsorted(used, entries.cells)))
    return cells


def _entries(measured: Sequence[Measured], by_cause: Float, in_groups: Index) -> _Entries:
    """Returns an entry for each kind, group and position, then one for each cause that has some of a position's mass.

    Cells are numbered kind by kind, then the causes.
    """
    leaked = np.stack([kind.leaked for kind in measured])  # [K, B]
    flipped = np.stack([kind.flipped for kind in measured])
    kl = np.stack([kind.kl for kind in measured])
    known = ~np.isnan(leaked)
    sound = (leaked[known] >= 0) & (leaked[known] < np.inf) & ~np.isnan(kl[known])
    if not (sound.all() and np.isfinite(by_cause).all()):
        raise ValueError("a figure is no probability, or a divergence no number")

    everything = np.zeros((1, in_groups.shape[1]), np.intp)
    groups = np.concatenate([everything, in_groups + _FIRST_OF[:, None]])  # [1 + D, B]
    first_cells = np.arange(len(measured)) * len(_GROUPS)
    cells = first_cells[:, None, None] + groups  # [K, 1 + D, B]
    rows, causes = np.nonzero(by_cause)
    masses, zeros = by_cause[rows, causes], np.zeros(len(rows))

    def joined(of_kinds: NDArray[Any], of_causes: NDArray[Any]) -> NDArray[Any]:
        """Returns values `[K, B]`, each repeated for the groups of its position, and values of the
        causes.
        """
        values = np.empty(cells.size + len(of_causes), of_kinds.dtype)
        values[: cells.size].reshape(cells.shape)[:] = of_kinds[:, None]
        values[cells.size :] = of_causes
        return values

    return _Entries(
        np.concatenate([cells.ravel(), len(measured) * len(_GROUPS) + causes]),
        joined(np.searchsorted(BOUNDS, leaked), np.searchsorted(BOUNDS, masses)),
        joined(leaked, masses),
        joined(kl, zeros),
        joined(known, zeros == 0),
        joined(flipped, zeros > 0),
    )


def _fill(cells: Cells, entries: _Entries) -> None:
    """Adds the entries up in cells that are empty."""
    size = len(cells.places)
    flags = (entries.known, ~entries.known, entries.flipped, np.isinf(entries.kl))
    counts = [np.bincount(entries.cells[flag], minlength=size) for flag in flags]
    cells.counts[:] = np.stack(counts, axis=1)
    finite = np.isfinite(entries.kl)
    cells.sums[:, 1] = np.bincount(entries.cells[finite], entries.kl[finite], size)
    known = entries.known
    cell, leaked, bins = entries.cells[known], entries.leaked[known], entries.bins[known]
    cells.sums[:, 0] = np.bincount(cell, leaked, size)
    np.maximum.at(cells.max, cell, leaked)
    cells.bins, cells.tallies = np.unique(cell * len(BOUNDS) + bins, return_counts=True)
