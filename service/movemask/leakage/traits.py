"""The traits of a position that leakage is grouped by, and the groups of each."""

from __future__ import annotations

from functools import cache

import numpy as np

from movemask.board.boards import Phase
from movemask.numeric.ragged import Float, Index

#: Dimensions that figures are grouped by, besides `cause` and `model`; a position is in one group of each.
DIMENSIONS = ("phase", "side", "in_check", "legal_moves", "elo")

_MOVES_FROM = (1, 2, 5, 10, 20, 30, 40, 60)
_ELO_FROM = (0, *range(1000, 2500, 200))


@cache
def groups(dimension: str) -> tuple[str, ...]:
    """Every group of a dimension, in natural order."""
    match dimension:
        case "phase":
            return tuple(phase.value for phase in Phase)
        case "side":
            return ("white", "black")
        case "in_check":
            return ("true", "false")
        case "legal_moves":
            return tuple(_band(start, _MOVES_FROM) for start in _MOVES_FROM)
        case "elo":
            return (*(_band(start, _ELO_FROM) for start in _ELO_FROM), "unknown")
    raise ValueError(f"dimension: no {dimension!r}; there are {', '.join(DIMENSIONS)}")


def legal_moves_places(legal_moves: Index) -> Index:
    """For numbers of legal moves `[B]`, at least 1, the index of each's group."""
    return np.searchsorted(_MOVES_FROM, legal_moves, side="right") - 1


def elo_places(elos: Float) -> Index:
    """For ratings `[B]`, NaN where none is known, the index of each's group."""
    bands = np.searchsorted(_ELO_FROM, np.maximum(elos, 0.0), side="right") - 1
    return np.where(np.isnan(elos), len(_ELO_FROM), bands)


def _band(start: int, starts: tuple[int, ...]) -> str:
    """The name of the band of whole numbers from `start` on, such as `10-19`; the last one is open."""
    if start == starts[-1]:
        return f"{start}+"
    last = starts[starts.index(start) + 1] - 1
    return str(start) if last == start else f"{start}-{last}"
