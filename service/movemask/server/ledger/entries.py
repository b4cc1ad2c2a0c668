"""`LedgerBatch`, which the pipeline hands to the recorder, and `LedgerTable`, which the ledger writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np

from movemask.board.boards import Flags, phases_of
from movemask.columns import SHARED, Columns
from movemask.leakage.cells import Cells, cells_of
from movemask.leakage.explain import Explained, explained
from movemask.leakage.groups import groups_of
from movemask.leakage.measure import HeavySlots, Measured
from movemask.network.model import Batch, Model
from movemask.policy.ragged import Float, Index


@dataclass(frozen=True, slots=True)
class LedgerTable(Columns):
    """B answered positions of one network as the ledger writes them, with the traits that figures are grouped by.

    times : float64 `[B]`, seconds since 1970
    fens, chess960 : the position, and bool `[B]`: whether it is Chess960
    elos : rating of the side to move in each request; None if the request gave none
    measured : by kind of leakage, arrays `[B]`
    explained : the illegal moves with the most probability, and the mass by cause `[B, len(CAUSES)]`
    phases : intp `[B]`, indices into the members of Phase
    black, in_check : bool `[B]`, whether Black is to move, and whether the side to move is in check
    legal_moves : intp `[B]`, number of legal moves
    id : unique. A table made from another has an id of its own, so the ledger writes each table once.
    """

    model: str = field(metadata=SHARED)
    digest: str = field(metadata=SHARED)
    trained_with_mask: bool = field(metadata=SHARED)
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
    id: str = field(default_factory=lambda: uuid4().hex, init=False, metadata=SHARED)  # `replace` makes a new one

    def __len__(self) -> int:
        return len(self.fens)

    def cells(self) -> Cells:
        """The cells of these positions. ValueError for a leakage or a divergence that is no number or is negative."""
        return cells_of(self.measured, self.explained.by_cause, self.groups())

    def groups(self) -> Index:
        """Indices into `leakage.groups.groups` of each position, intp `[len(DIMENSIONS), B]`."""
        elos = np.array(self.elos, dtype=np.float64)  # None becomes NaN
        return groups_of(self.phases, self.black, self.in_check, self.legal_moves, elos)


@dataclass(frozen=True, slots=True)
class LedgerBatch(Columns):
    """B answered positions of one network, before their illegal mass is explained: a few hundred bytes each.

    times, elos, measured : as in LedgerTable
    heavy : the illegal slots with the most probability (`UnmaskedLogits.heavy`)
    """

    model: Model = field(metadata=SHARED)
    times: Float
    elos: Sequence[float | None]
    batch: Batch
    measured: Mapping[str, Measured]
    heavy: HeavySlots

    def __len__(self) -> int:
        return len(self.batch)

    def table(self) -> LedgerTable:
        """The table of these positions, which names the heavy slots and their causes."""
        batch = self.batch
        return LedgerTable(
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

    @classmethod
    def by_network(cls, parts: Sequence[LedgerBatch]) -> list[LedgerBatch]:
        """The same positions in one batch for each network and set of kinds: a few large batches are tabled faster."""
        groups: list[list[LedgerBatch]] = []
        for part in parts:
            for group in groups:
                if group[0].model is part.model and group[0].measured.keys() == part.measured.keys():
                    group.append(part)
                    break
            else:
                groups.append([part])
        return [cls.joined(group) for group in groups]
