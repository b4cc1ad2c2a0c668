"""Tallies: the figures of parts of an audit, which merge in any order and grouping to the same figures."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from movemask.audit.cells import Cell, Key, grouped, merged, of_causes
from movemask.audit.columns import floats, members_of_table
from movemask.audit.files import Folder
from movemask.audit.parts import read_table, skipped_in
from movemask.audit.samples import Skipped
from movemask.leakage.causes import Cause
from movemask.leakage.kinds import KINDS, MULTIPLIED, RAW

#: Kinds whose worst positions are shown.
SHOWN = (RAW, MULTIPLIED)

#: Positions shown for each of them.
WORST = 20

_EXAMPLES = 20

#: Floats whose exact sum is meant.
Sum = tuple[float, ...]

#: A row of the table, by column.
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelTally:
    """The figures of one network. `sums` holds, by cell, what leaked and the divergences, as exact sums of the parts'
    sums: floats added in another order may give another last digit."""

    digest: str
    trained_with_mask: bool
    positions: int
    cells: dict[Key, Cell]
    sums: dict[Key, tuple[Sum, Sum]]
    worst: dict[str, list[Row]]

    @classmethod
    def of(cls, rows: pa.Table) -> ModelTally:
        """The tally of the positions of a table, of one network."""
        cells = cells_of_table(rows)
        return cls(
            rows["digest"][0].as_py(),
            rows["trained_with_mask"][0].as_py(),
            rows.num_rows,
            cells,
            {key: ((cell.sum,), (cell.kl,)) for key, cell in cells.items()},
            {kind: _worst(kind, _heaviest(kind, rows)) for kind in SHOWN if kind in rows.column_names},
        )

    @classmethod
    def merged(cls, tallies: Sequence[ModelTally]) -> ModelTally:
        """The tally of the positions of all these, of one network."""
        first = tallies[0]
        if len(tallies) == 1:
            return first
        keys = {key for tally in tallies for key in tally.sums}
        sums = {key: _added([tally.sums[key] for tally in tallies if key in tally.sums]) for key in keys}
        cells = merged(tally.cells for tally in tallies)
        return cls(
            first.digest,
            first.trained_with_mask,
            sum(tally.positions for tally in tallies),
            {
                key: replace(cell, sum=math.fsum(sums[key][0]), kl=math.fsum(sums[key][1]))
                for key, cell in cells.items()
            },
            sums,
            {kind: _worst(kind, [row for tally in tallies for row in tally.worst[kind]]) for kind in first.worst},
        )


@dataclass(frozen=True, slots=True)
class Tally:
    """The figures of some parts: networks by name, and what was left out, with examples by the place of their part."""

    models: dict[str, ModelTally] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[tuple[int, str], ...] = ()

    @classmethod
    def of(cls, rows: pa.Table, skipped: Skipped | None = None, place: int = 0) -> Tally:
        """The tally of a table; `place` orders the examples."""
        models = {
            name: ModelTally.of(rows.filter(pc.equal(rows["model"], name)))
            for name in pc.unique(rows["model"]).to_pylist()
        }
        skipped = skipped or Skipped()
        return cls(models, skipped.reasons, tuple((place, example) for example in skipped.examples))

    @classmethod
    def merged(cls, tallies: Iterable[Tally]) -> Tally:
        parts = list(tallies)
        reasons: Counter[str] = Counter()
        for part in parts:
            reasons.update(part.reasons)
        names = dict.fromkeys(name for part in parts for name in part.models)
        return cls(
            {name: ModelTally.merged([part.models[name] for part in parts if name in part.models]) for name in names},
            reasons,
            tuple(sorted((example for part in parts for example in part.examples), key=_place)[:_EXAMPLES]),
        )

    @property
    def skipped(self) -> Skipped:
        """What was left out: reasons in alphabetical order, examples in that of the files."""
        return Skipped(Counter(dict(sorted(self.reasons.items()))), [example for _, example in self.examples])


def tally(files: Sequence[tuple[int, Folder]]) -> Tally:
    """The tally of parts, each with its place among all parts."""
    return Tally.merged(Tally.of(read_table(file), skipped_in(file), place) for place, file in files)


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


def _place(example: tuple[int, str]) -> int:
    return example[0]


def exact_sum(values: Iterable[float]) -> Sum:
    """Few floats with exactly the sum of these, which are finite; the sums of sums do not depend on their order."""
    addends = list(values)
    parts: list[float] = []
    while rest := math.fsum([*addends, *(-part for part in parts)]):
        parts.append(rest)
    return tuple(parts)


def _added(sums: Sequence[tuple[Sum, Sum]]) -> tuple[Sum, Sum]:
    return (
        exact_sum(value for leaked, _ in sums for value in leaked),
        exact_sum(value for _, kl in sums for value in kl),
    )


def _heaviest(kind: str, rows: pa.Table) -> list[Row]:
    """Rows among which are the worst, WORST positions of them at least if there are; positions may repeat."""
    leaked = np.nan_to_num(floats(rows[kind]), nan=0.0)
    order = np.argsort(-leaked, kind="stable")
    order = order[leaked[order] > 0]
    fens = rows["fen"].take(pa.array(order)).to_pylist()
    seen: set[str] = set()
    least = 0.0
    taken = 0
    for row, fen in zip(order, fens, strict=True):
        if len(seen) >= WORST and leaked[row] < least:
            break
        seen.add(fen)
        least = leaked[row]
        taken += 1
    columns = [name for name in rows.column_names if not name.startswith("cause_")]
    found: list[Row] = rows.select(columns).take(pa.array(order[:taken])).to_pylist()
    return found


def _worst(kind: str, rows: Iterable[Row]) -> list[Row]:
    """The worst of these rows, each position once, worst first."""
    best: dict[str, Row] = {}
    for row in rows:
        known = best.get(row["fen"])
        if known is None or _rank(kind, row) < _rank(kind, known):
            best[row["fen"]] = row
    return heapq.nsmallest(WORST, best.values(), key=lambda row: _rank(kind, row))


def _rank(kind: str, row: Row) -> tuple[Any, ...]:
    """Orders rows: what leaks more first, and of what leaks the same, the same one whatever order they came in."""
    return -row[kind], row["fen"], row["source"] or "", row["item"] or 0, row["ply"] or 0
