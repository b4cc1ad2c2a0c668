"""Answered batches on their way to the audit's store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from movemask.board.boards import phases_of
from movemask.leakage.explain import explained
from movemask.leakage.measure import HeavySlots, Measured
from movemask.network.model import Batch, Model
from movemask.numeric.ragged import Float, Index
from movemask.records.table import AuditTable


@dataclass(frozen=True, slots=True)
class Audited:
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

    def rows(self, keep: Index) -> Audited:
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
    def joined(cls, parts: Sequence[Audited]) -> list[Audited]:
        """Parts of the same network and kinds, concatenated: a table is made faster from few large batches."""
        groups: dict[Hashable, list[Audited]] = defaultdict(list)
        for part in parts:
            groups[id(part.model), tuple(part.measured)].append(part)
        return [group[0] if len(group) == 1 else cls._joined(group) for group in groups.values()]

    @classmethod
    def _joined(cls, parts: Sequence[Audited]) -> Audited:
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
