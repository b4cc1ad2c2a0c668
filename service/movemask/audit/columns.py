"""Columns of an audit's table as arrays, and the groups of its rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from movemask.audit.cells import Members
from movemask.leakage.traits import DIMENSIONS, elo_group, legal_moves_group
from movemask.numeric.ragged import Float

#: For each of DIMENSIONS: its column, and the group of a value.
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
    values: Float = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return values


def members_of_table(rows: pa.Table) -> Members:
    """By dimension and group, its rows."""
    members = {}
    for dimension in DIMENSIONS:
        column, group_of = _GROUPS[dimension]
        encoded = rows[column].combine_chunks().dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy()
        values_of: dict[str, list[int]] = defaultdict(list)
        for index, value in enumerate(encoded.dictionary.to_pylist()):
            values_of[group_of(value)].append(index)
        members[dimension] = {group: np.flatnonzero(np.isin(indices, values)) for group, values in values_of.items()}
    return members
