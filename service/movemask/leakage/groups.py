"""Groups of positions with figures of their own: by phase, side, check, number of legal moves, rating."""

from __future__ import annotations

from functools import cache

import numpy as np

from movemask.board.boards import Flags, Phase
from movemask.policy.ragged import Float, Index

#: Dimensions that figures are grouped by, besides `cause` and `model`. A position is in one group of each dimension.
DIMENSIONS = ("phase", "side", "in_check", "legal_moves", "elo")

#: The first number of each band of legal moves and of ratings. The last band has no end.
_MOVES_FROM = (1, 2, 5, 10, 20, 30, 40, 60)
_ELO_FROM = (0, *range(1000, 2500, 200))


@cache
def groups(dimension: str) -> tuple[str, ...]:
    """Returns the names of all groups of a dimension, in natural order. ValueError for an unknown dimension."""
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
    raise ValueError(f"dimension: no {dimension!r}; available: {', '.join(DIMENSIONS)}")


def _band(start: int, starts: tuple[int, ...]) -> str:
    """Returns the name of the band of whole numbers that begins at `start`: `10-19`, `1` for one number, `60+` for the
    last."""
    if start == starts[-1]:
        return f"{start}+"
    last = starts[starts.index(start) + 1] - 1
    return str(start) if last == start else f"{start}-{last}"


def groups_of(
    phases: Index, black: Flags, in_check: Flags, legal_moves: Index, elos: Float
) -> Index:
    """Returns each position's index in `groups` of each of DIMENSIONS, intp `[len(DIMENSIONS), B]`.

    phases : intp `[B]`, indices into the members of Phase
    black, in_check : bool `[B]`, whether Black is to move, and whether the side to move is in check
    legal_moves : int `[B]`, number of legal moves
    elos : float64 `[B]`, rating of the side to move; NaN if it is not known
    """
    moves = np.searchsorted(_MOVES_FROM, legal_moves, side="right") - 1
    bands = np.searchsorted(_ELO_FROM, np.maximum(elos, 0.0), side="right") - 1
    elo = np.where(np.isnan(elos), len(_ELO_FROM), bands)
    return np.stack([phases, black, ~in_check, moves, elo]).astype(np.intp)
