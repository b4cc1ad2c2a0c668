"""`AuditBatch`, which the pipeline hands to the audit, and `AuditTable`, which the store writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from uuid import uuid4

import numpy as np

from movemask.board.boards import Flags, Phase, phases_of
from movemask.leakage.explain import Explained, explained
from movemask.leakage.measure import HeavySlots, Measured
from movemask.network.model import Batch, Model
from movemask.policy.ragged import Float, Index

#: Dimensions that figures are grouped by, besides `cause` and `model`. A position is in one group of each dimension.
DIMENSIONS = ("phase", "side", "in_check", "legal_moves", "elo")

#: The first number of each band of legal moves and of ratings. The last band has no end.
_MOVES_FROM = (1, 2, 5, 10, 20, 30, 40, 60)
_ELO_FROM = (0, *range(1000, 2500, 200))


@cache
def groups(dimension: str) -> tuple[str, ...]:
    """Names of all groups of a dimension, in natural order. ValueError for an unknown dimension."""
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
    """Name of the band of whole numbers that begins at `start`: `10-19`, `1` for one number, `60+` for the last."""
    if start == starts[-1]:
        return f"{start}+"
    last = starts[starts.index(start) + 1] - 1
    return str(start) if last == start else f"{start}-{last}"


@dataclass(frozen=True, slots=True)
class AuditTable:
    """B answered positions of one network as the store writes them, with the traits that figures are grouped by.

    times : float64 `[B]`, seconds since 1970
    fens, chess960 : the position, and bool `[B]`: whether it is Chess960
    elos : rating of the side to move in each request; None if the request gave none
    measured : by kind of leakage, arrays `[B]`
    explained : the illegal moves with the most probability, and the mass by cause `[B, len(CAUSES)]`
    phases : intp `[B]`, indices into the members of Phase
    black, in_check : bool `[B]`, whether Black is to move, and whether the side to move is in check
    legal_moves : intp `[B]`, number of legal moves
    id : unique. A table made from another has an id of its own, so the store writes each table once.
    """

    model: str
    digest: str
    trained_with_mask: bool
    times: Float
    fens: Sequence[str]
    chess960: Flags
    elos: Sequence[float | None]
    measured: Mapping[str, Measured]
    explained: Explained
    phases: Index
    black: Flags
    in_check: Flags
    legal_moves: Index
    id: str = field(default_factory=lambda: uuid4().hex, init=False)  # `replace` makes a new one

    def __len__(self) -> int:
        return len(self.fens)

    def rows(self, keep: Index) -> AuditTable:
        """A table of the positions `keep`, indices in rising order."""
        return replace(
            self,
            times=self.times[keep],
            fens=[self.fens[row] for row in keep.tolist()],
            chess960=self.chess960[keep],
            elos=[self.elos[row] for row in keep.tolist()],
            measured={kind: measured.rows(keep) for kind, measured in self.measured.items()},
            explained=self.explained.rows(keep),
            phases=self.phases[keep],
            black=self.black[keep],
            in_check=self.in_check[keep],
            legal_moves=self.legal_moves[keep],
        )

    def groups(self) -> Index:
        """Indices into `groups` of each position in each of DIMENSIONS, intp `[len(DIMENSIONS), B]`."""
        moves = np.searchsorted(_MOVES_FROM, self.legal_moves, side="right") - 1
        ratings = np.array([0.0 if elo is None else max(elo, 0.0) for elo in self.elos])
        unknown = [elo is None for elo in self.elos]
        elo = np.where(unknown, len(_ELO_FROM), np.searchsorted(_ELO_FROM, ratings, side="right") - 1)
        return np.stack([self.phases, self.black, ~self.in_check, moves, elo]).astype(np.intp)


@dataclass(frozen=True, slots=True)
class AuditBatch:
    """B answered positions of one network, before their illegal mass is explained: a few hundred bytes each.

    times, elos, measured : as in AuditTable
    heavy : the illegal slots with the most probability (`UnmaskedLogits.heavy`)
    """

    model: Model
    times: Float
    elos: Sequence[float | None]
    batch: Batch
    measured: Mapping[str, Measured]
    heavy: HeavySlots

    def __len__(self) -> int:
        return len(self.batch)

    def table(self) -> AuditTable:
        """The table of these positions, which names the heavy slots and their causes."""
        batch = self.batch
        return AuditTable(
            self.model.name,
            self.model.digest,
            self.model.trained_with_mask,
            self.times,
            [position.fen for position in batch.positions],
            batch.boards.chess960,
            self.elos,
            self.measured,
            explained(self.heavy, batch.boards, self.model.vocabulary, batch.codes, batch.indptr),
            phases_of(batch.boards),
            batch.boards.black,
            batch.in_check,
            batch.counts,
        )

    def rows(self, keep: Index) -> AuditBatch:
        """A batch of the positions `keep`, indices in rising order."""
        place = np.full(len(self), -1, dtype=np.intp)
        place[keep] = np.arange(len(keep))
        slots = place[self.heavy.rows] >= 0
        return replace(
            self,
            times=self.times[keep],
            elos=[self.elos[row] for row in keep.tolist()],
            batch=self.batch.rows(keep),
            measured={kind: measured.rows(keep) for kind, measured in self.measured.items()},
            heavy=HeavySlots(place[self.heavy.rows[slots]], self.heavy.slots[slots], self.heavy.masses[slots]),
        )

    @classmethod
    def joined(cls, parts: Sequence[AuditBatch]) -> list[AuditBatch]:
        """The same positions in one batch for each network and set of kinds: a few large batches are tabled faster."""
        groups: list[list[AuditBatch]] = []
        for part in parts:
            for group in groups:
                if group[0].model is part.model and group[0].measured.keys() == part.measured.keys():
                    group.append(part)
                    break
            else:
                groups.append([part])
        return [group[0] if len(group) == 1 else cls._joined(group) for group in groups]

    @classmethod
    def _joined(cls, parts: Sequence[AuditBatch]) -> AuditBatch:
        starts = np.cumsum([0, *map(len, parts[:-1])])
        return replace(
            parts[0],
            times=np.concatenate([part.times for part in parts]),
            elos=[elo for part in parts for elo in part.elos],
            batch=Batch.joined([part.batch for part in parts]),
            measured={kind: Measured.joined([part.measured[kind] for part in parts]) for kind in parts[0].measured},
            heavy=HeavySlots(
                np.concatenate([part.heavy.rows + start for part, start in zip(parts, starts, strict=True)]),
                np.concatenate([part.heavy.slots for part in parts]),
                np.concatenate([part.heavy.masses for part in parts]),
            ),
        )
