"""The leakage of positions as columns, as the store keeps it, and the groups of positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from movemask.board.boards import Flags, Phase
from movemask.leakage.explain import Explained
from movemask.leakage.measure import Measured
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


def _band(start: int, starts: tuple[int, ...]) -> str:
    """The name of the band of whole numbers from `start` on, such as `10-19`; the last one is open."""
    if start == starts[-1]:
        return f"{start}+"
    last = starts[starts.index(start) + 1] - 1
    return str(start) if last == start else f"{start}-{last}"


@dataclass(frozen=True, slots=True)
class AuditTable:
    """Answered positions of one network as the store keeps them, with the traits that figures are grouped by.

    times : float64 `[B]`, in seconds since the epoch
    elos : float64 `[B]`, ratings of the side to move in the request; NaN for none
    measured : by kind, arrays `[B]`
    explained : the heaviest illegal moves, and the mass by cause `[B, len(CAUSES)]`
    phases : intp `[B]`, indices into the members of Phase
    black, in_check : bool `[B]`; `black` where Black is to move
    legal_moves : intp `[B]`
    """

    model: str
    digest: str
    trained_with_mask: bool
    times: Float
    fens: Sequence[str]
    chess960: Flags
    elos: Float
    measured: Mapping[str, Measured]
    explained: Explained
    phases: Index
    black: Flags
    in_check: Flags
    legal_moves: Index

    def __len__(self) -> int:
        return len(self.fens)

    def rows(self, keep: Index) -> AuditTable:
        """The table of the positions `keep`."""
        return replace(
            self,
            times=self.times[keep],
            fens=[self.fens[row] for row in keep.tolist()],
            chess960=self.chess960[keep],
            elos=self.elos[keep],
            measured={kind: measured.rows(keep) for kind, measured in self.measured.items()},
            explained=self.explained.rows(keep),
            phases=self.phases[keep],
            black=self.black[keep],
            in_check=self.in_check[keep],
            legal_moves=self.legal_moves[keep],
        )

    def groups(self) -> Index:
        """Each position's group in each of DIMENSIONS, as its index in `groups`: `[len(DIMENSIONS), B]`."""
        moves = np.searchsorted(_MOVES_FROM, self.legal_moves, side="right") - 1
        bands = np.searchsorted(_ELO_FROM, np.maximum(self.elos, 0.0), side="right") - 1
        elo = np.where(np.isnan(self.elos), len(_ELO_FROM), bands)
        return np.stack([self.phases, self.black, ~self.in_check, moves, elo]).astype(np.intp)
