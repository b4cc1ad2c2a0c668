"""`Columns`: arrays about the same B positions, which are cut and joined together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

#: What a field holds, as its `metadata`. A field without one has a value for each position along its first axis: an
#: array, a sequence, Columns, or a mapping of Columns.
_KIND = "columns"
SHARED = {_KIND: "shared"}  # the same for all positions
INDPTR = {_KIND: "indptr"}  # `[B + 1]`, the bounds of each position's values in the ragged fields
RAGGED = {_KIND: "ragged"}  # `[N, …]`, several values for each position
LAST_AXIS = {_KIND: "last_axis"}  # `[…, B]`


class Columns:
    """Base class of frozen dataclasses whose fields are about the same B positions."""

    __slots__ = ()

    def rows(self, keep: Sequence[int] | NDArray[np.intp]) -> Self:
        """Returns the positions at these indices, in their order; an index may repeat."""
        keep = np.asarray(keep, dtype=np.intp)
        kinds, cut, values = _kinds(type(self)), {}, keep
        for name in (name for name, kind in kinds.items() if kind == "indptr"):
            indptr = getattr(self, name)
            lengths = np.diff(indptr)[keep]
            cut[name] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.intp)
            values = np.arange(cut[name][-1]) + np.repeat(indptr[keep] - cut[name][:-1], lengths)
        for name, kind in kinds.items():
            if kind not in ("shared", "indptr"):
                value = getattr(self, name)
                at = values if kind == "ragged" else keep
                cut[name] = value[..., at] if kind == "last_axis" else _take(value, at)
        return replace(self, **cut)  # type: ignore[type-var]

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Returns the positions of all parts, in order. Shared fields are those of the first part."""
        if len(parts) == 1:
            return parts[0]
        whole: dict[str, Any] = {}
        for name, kind in _kinds(cls).items():
            values = [getattr(part, name) for part in parts]
            if kind == "indptr":
                whole[name] = np.concatenate(
                    [[0], np.cumsum(np.concatenate([np.diff(indptr) for indptr in values]))]
                )
            elif kind == "last_axis":
                whole[name] = np.concatenate(values, axis=-1)
            elif kind != "shared":
                whole[name] = _concatenate(values)
        return replace(parts[0], **whole)  # type: ignore[type-var]


def _kinds(columns: type[Any]) -> dict[str, str]:
    return {one.name: one.metadata.get(_KIND, "rows") for one in fields(columns)}


def _take(value: Any, at: NDArray[np.intp]) -> Any:
    if isinstance(value, np.ndarray):
        return value[at]
    if isinstance(value, Columns):
        return value.rows(at)
    if isinstance(value, Mapping):
        return {key: _take(one, at) for key, one in value.items()}
    return [value[place] for place in at.tolist()]


def _concatenate(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(values)
    if isinstance(first, Columns):
        return type(first).joined(values)
    if isinstance(first, Mapping):
        return {key: _concatenate([value[key] for value in values]) for key in first}
    return [one for value in values for one in value]
