"""Columns of an audit's table as arrays, and the groups that its rows are counted in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from movemask.leakage.traits import DIMENSIONS, elo_group, legal_moves_group
from movemask.numeric.ragged import Float
from movemask.store.cells import Members

#: For each of DIMENSIONS: the column that says it, and the group of a value.
_GROUPS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "phase": ("phase", str),
    "side": ("turn", str),
    "in_check": ("in_check", lambda checked: "true" if checked else "false"),
    "legal_moves": ("legal_moves", legal_moves_group),
    "elo": ("elo", elo_group),
}

#: The columns that `members_of_table` reads.
GROUP_COLUMNS = tuple(_GROUPS[dimension][0] for dimension in DIMENSIONS)


def floats(column: pa.ChunkedArray) -> Float:
    """Float64 `[N]`, null as NaN."""
    found: Float = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return found


def members_of_table(rows: pa.Table) -> Members:
    """By dimension and group, the rows that are counted there."""
    found = {}
    for dimension in DIMENSIONS:
        column, group_of = _GROUPS[dimension]
        encoded = rows[column].combine_chunks().dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy()
        places: dict[str, list[int]] = defaultdict(list)
        for place, value in enumerate(encoded.dictionary.to_pylist()):
            places[group_of(value)].append(place)
        found[dimension] = {group: np.flatnonzero(np.isin(indices, own)) for group, own in places.items()}
    return found
