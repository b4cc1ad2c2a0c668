"""Exact quantiles of the tables of an audit, in any number of parts and with memory that does not grow with them.

The sketches of the cells bound the value at each rank. A pass over the parts counts the values within the bounds: few
are returned one by one, many as a histogram, by which the bounds of the next pass are much narrower. Two or three
passes find all the ranks of all cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from movemask.audit.cells import ALL, CAUSE, QUANTILES, Cell, Key
from movemask.audit.columns import GROUP_COLUMNS, floats, members_of_table
from movemask.audit.files import Folder
from movemask.audit.parts import read_table
from movemask.audit.sketch import rank_of
from movemask.leakage.causes import Cause
from movemask.leakage.kinds import KINDS, RAW
from movemask.numeric.ragged import Float

#: Most values within the bounds of a rank that are told one by one.
FEW = 2048

_BINS = 128

_COLUMNS = (*KINDS, *(f"cause_{cause.value}" for cause in Cause))

Cells = Mapping[Key, Cell]


class Bounds(NamedTuple):
    """The least and the largest value that the one at a rank can have, and how many values may lie between them."""

    low: float
    high: float
    between: int


@dataclass(frozen=True, slots=True)
class Found:
    """Of some values: how many are `below` the bounds; of those within, the distinct ones or, of many, the least and
    largest of each bin, with their counts. All `[K]`, ascending."""

    below: int
    least: Float
    largest: Float
    counts: NDArray[np.intp]

    @classmethod
    def of(cls, values: Float, bounds: Bounds) -> Found:
        low, high, between = bounds
        below = int((values < low).sum())
        inside = np.sort(values[(values >= low) & (values <= high)])
        if between <= FEW:
            distinct, counts = np.unique(inside, return_counts=True)
            return cls(below, distinct, distinct, counts)
        bins = ((inside - low) / (high - low) * _BINS).astype(np.intp).clip(0, _BINS - 1)
        _, first, counts = np.unique(bins, return_index=True, return_counts=True)
        return cls(below, inside[first], inside[first + counts - 1], counts)

    @classmethod
    def merged(cls, found: Sequence[Found], bounds: Bounds) -> Found:
        """What was found of all these values, in any order."""
        least = np.concatenate([one.least for one in found])
        largest = np.concatenate([one.largest for one in found])
        counts = np.concatenate([one.counts for one in found])
        low, high, between = bounds
        if between <= FEW:
            bins = np.unique(least, return_inverse=True)[1]
        else:
            bins = ((least - low) / (high - low) * _BINS).astype(np.intp).clip(0, _BINS - 1)
        order = np.argsort(bins, kind="stable")
        _, first = np.unique(bins[order], return_index=True)
        below = sum(one.below for one in found)
        if not len(order):
            return cls(below, least, largest, counts)
        return cls(
            below,
            np.minimum.reduceat(least[order], first),
            np.maximum.reduceat(largest[order], first),
            np.add.reduceat(counts[order], first),
        )

    def narrowed(self, rank: int) -> Bounds:
        """The bounds of the value at a rank (from 1) of all the values."""
        index = int(np.searchsorted(np.cumsum(self.counts), rank - self.below))
        return Bounds(float(self.least[index]), float(self.largest[index]), int(self.counts[index]))


#: A rank of a cell: network, cell, quantile.
Place = tuple[str, Key, str]

#: Applies a function to each item, in any order and place: the builtin `map`, or that of a cluster.
Each = Callable[
    [Callable[[Sequence[Folder]], dict[Place, Found]], Iterable[Sequence[Folder]]], Iterable[dict[Place, Found]]
]


def exact(groups: Sequence[Sequence[Folder]], models: Mapping[str, Cells], each: Each) -> dict[str, dict[Key, Cell]]:
    """The cells of each network of these tables, with exact quantiles."""
    ranks: dict[Place, int] = {}
    bounds: dict[Place, Bounds] = {}
    for name, cells in models.items():
        for key, cell in cells.items():
            for quantile, q in QUANTILES.items() if cell.count else ():
                rank = ranks[name, key, quantile] = rank_of(q, cell.count)
                bucket = np.searchsorted(np.cumsum(cell.sketch.counts), rank)
                bounds[name, key, quantile] = Bounds(*cell.sketch.around(rank), int(cell.sketch.counts[bucket]))
    values: dict[Place, float] = {}
    while bounds:
        total: dict[Place, Found] = {}
        for one in each(partial(passed, bounds), groups):
            total = merged_found([total, one], bounds)
        narrowed = {place: found.narrowed(ranks[place]) for place, found in total.items()}
        values |= {place: low for place, (low, high, _) in narrowed.items() if low == high}
        bounds = {place: within for place, within in narrowed.items() if within.low != within.high}
    result = {name: dict(cells) for name, cells in models.items()}
    for name, cells in models.items():
        for key, cell in cells.items():
            if cell.count:
                exact_values = {quantile: values[name, key, quantile] for quantile in QUANTILES}
                result[name][key] = replace(cell, exact=exact_values)
    return result


def passed(bounds: Mapping[Place, Bounds], files: Sequence[Folder]) -> dict[Place, Found]:
    """One pass over some tables: what is found within these bounds."""
    cells: dict[tuple[str, Key], list[str]] = {}
    for name, key, quantile in bounds:
        cells.setdefault((name, key), []).append(quantile)
    columns = {f"cause_{key.group}" if key.dimension == CAUSE else key.kind for _, key in cells}
    needed = [column for column in _COLUMNS if column in columns]
    total: dict[Place, Found] = {}
    for file in files:
        rows = read_table(file, ["model", *needed, *GROUP_COLUMNS])
        found: dict[Place, Found] = {}
        for name in pc.unique(rows["model"]).to_pylist():
            rows_of_model = rows.filter(pc.equal(rows["model"], name))
            for key, values in _values(rows_of_model, needed):
                for quantile in cells.get((name, key), ()):
                    found[name, key, quantile] = Found.of(values, bounds[name, key, quantile])
        total = merged_found([total, found], bounds)
    return total


def merged_found(parts: Sequence[Mapping[Place, Found]], bounds: Mapping[Place, Bounds]) -> dict[Place, Found]:
    """What was found of each rank in all parts."""
    result = {}
    for place in dict.fromkeys(place for part in parts for place in part):
        found = [part[place] for part in parts if place in part]
        result[place] = found[0] if len(found) == 1 else Found.merged(found, bounds[place])
    return result


def _values(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Key, Float]]:
    """The measured values of columns, by the cells that they count in."""
    members = members_of_table(rows)
    for column in columns:
        values = floats(rows[column])
        if column.startswith("cause_"):
            yield Key(RAW, CAUSE, column.removeprefix("cause_")), values[values > 0]
            continue
        yield Key(column, ALL, ""), values[~np.isnan(values)]
        for dimension, groups in members.items():
            for group, of_group in groups.items():
                found = values[of_group]
                yield Key(column, dimension, group), found[~np.isnan(found)]
