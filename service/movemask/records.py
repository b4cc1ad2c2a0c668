"""What is written down of an answer: the batches that the audit gets, and the tables with the groups of positions that
the store keeps."""

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
    raise ValueError(f"dimension: no {dimension!r}; available: {', '.join(DIMENSIONS)}")


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
    id : unique to each table, also to one made from another, so that the store writes it once
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
    id: str = field(default_factory=lambda: uuid4().hex, init=False)  # not copied by `replace`

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


@dataclass(frozen=True, slots=True)
class AuditBatch:
    """Answered positions of one network, before their illegal mass is explained: a few hundred bytes each, no logits.

    times, elos : as in AuditTable
    measured : by kind, arrays `[B]`
    heavy : the illegal slots to which plain softmax gives most (`UnmaskedLogits.heavy`)
    """

    model: Model
    times: Float
    elos: Float
    batch: Batch
    measured: Mapping[str, Measured]
    heavy: HeavySlots

    def __len__(self) -> int:
        return len(self.batch)

    def table(self) -> AuditTable:
        """The table of these positions."""
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
        """Those of the positions `keep`, which are in rising order."""
        place = np.full(len(self), -1, dtype=np.intp)
        place[keep] = np.arange(len(keep))
        slots = place[self.heavy.rows] >= 0
        return replace(
            self,
            times=self.times[keep],
            elos=self.elos[keep],
            batch=self.batch.rows(keep),
            measured={kind: measured.rows(keep) for kind, measured in self.measured.items()},
            heavy=HeavySlots(place[self.heavy.rows[slots]], self.heavy.slots[slots], self.heavy.masses[slots]),
        )

    @classmethod
    def joined(cls, parts: Sequence[AuditBatch]) -> list[AuditBatch]:
        """Parts of the same network and kinds, concatenated: a table is made faster from few large batches."""
        groups: list[list[AuditBatch]] = []
        for part in parts:
            for group in groups:
                if group[0].model is part.model and tuple(group[0].measured) == tuple(part.measured):
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
            elos=np.concatenate([part.elos for part in parts]),
            batch=Batch.joined([part.batch for part in parts]),
            measured={kind: Measured.joined([part.measured[kind] for part in parts]) for kind in parts[0].measured},
            heavy=HeavySlots(
                np.concatenate([part.heavy.rows + start for part, start in zip(parts, starts, strict=True)]),
                np.concatenate([part.heavy.slots for part in parts]),
                np.concatenate([part.heavy.masses for part in parts]),
            ),
        )
