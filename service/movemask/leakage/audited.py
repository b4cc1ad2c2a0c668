"""An answered batch as the audit keeps it, and the audit records made from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from movemask.board.boards import Boards, Flags, phases_of
from movemask.board.position import Position
from movemask.encoding.vocabulary import Vocabulary
from movemask.leakage.kinds import SERVED
from movemask.leakage.measure import Measured
from movemask.leakage.reasons import HeavySlots, explained
from movemask.leakage.record import AuditRecord, Figure, Leakage
from movemask.leakage.traits import Traits
from movemask.numeric.ragged import Index, joined_indptr


@dataclass(frozen=True, slots=True)
class Audited:
    """What the audit needs of an answered batch: a few hundred bytes per position, no logits.

    times : of each position, in seconds since the epoch
    codes, indptr : the legal moves `[N]` in CSR form
    measured : leakage by kind
    heavy : the illegal slots to which plain softmax gives most
    elos : ratings of the side to move in the request, or None
    unanswered : rows whose answer was withheld, and which get no record
    """

    times: Sequence[float]
    model: str
    digest: str
    trained_with_mask: bool
    vocabulary: Vocabulary
    positions: Sequence[Position]
    boards: Boards
    in_check: Flags
    codes: Index
    indptr: Index
    measured: Mapping[str, Measured]
    heavy: HeavySlots
    elos: Sequence[float | None]
    unanswered: frozenset[int] = frozenset()

    def __len__(self) -> int:
        """Positions that were answered."""
        return len(self.positions) - len(self.unanswered)

    def row(self, row: int) -> Audited:
        """A batch of this row alone."""
        here = self.heavy.rows == row
        moves = slice(int(self.indptr[row]), int(self.indptr[row + 1]))
        return replace(
            self,
            times=[self.times[row]],
            positions=[self.positions[row]],
            boards=self.boards.rows([row]),
            in_check=self.in_check[row : row + 1],
            codes=self.codes[moves],
            indptr=np.array([0, moves.stop - moves.start], dtype=np.intp),
            measured={
                kind: Measured(kept.leaked[row : row + 1], kept.flipped[row : row + 1], kept.kl[row : row + 1])
                for kind, kept in self.measured.items()
            },
            heavy=HeavySlots(np.zeros(int(here.sum()), dtype=np.intp), self.heavy.slots[here], self.heavy.masses[here]),
            elos=[self.elos[row]],
            unanswered=frozenset({0} if row in self.unanswered else ()),
        )

    @classmethod
    def joined(cls, parts: Sequence[Audited]) -> list[Audited]:
        """Batches of the same network and kinds, concatenated: records are made faster from few large batches."""
        groups: dict[Hashable, list[Audited]] = defaultdict(list)
        for part in parts:
            groups[part.model, part.digest, part.vocabulary, tuple(part.measured)].append(part)
        return [group[0] if len(group) == 1 else cls._joined(group) for group in groups.values()]

    @classmethod
    def _joined(cls, parts: Sequence[Audited]) -> Audited:
        starts = np.cumsum([0, *(len(part.positions) for part in parts)])
        return replace(
            parts[0],
            times=[time for part in parts for time in part.times],
            positions=[position for part in parts for position in part.positions],
            boards=Boards.joined([part.boards for part in parts]),
            in_check=np.concatenate([part.in_check for part in parts]),
            codes=np.concatenate([part.codes for part in parts]),
            indptr=joined_indptr([part.indptr for part in parts]),
            measured={
                kind: Measured(
                    np.concatenate([part.measured[kind].leaked for part in parts]),
                    np.concatenate([part.measured[kind].flipped for part in parts]),
                    np.concatenate([part.measured[kind].kl for part in parts]),
                )
                for kind in parts[0].measured
            },
            heavy=HeavySlots(
                np.concatenate([part.heavy.rows + start for part, start in zip(parts, starts, strict=False)]),
                np.concatenate([part.heavy.slots for part in parts]),
                np.concatenate([part.heavy.masses for part in parts]),
            ),
            elos=[elo for part in parts for elo in part.elos],
            unanswered=frozenset(
                row + int(start) for part, start in zip(parts, starts, strict=False) for row in part.unanswered
            ),
        )


def records_of(audited: Audited) -> list[AuditRecord]:
    """A record of each answered position: its leakage, its causes, and the groups it is counted in."""
    legal = [audited.codes[start:end] for start, end in zip(audited.indptr[:-1], audited.indptr[1:], strict=True)]
    reasons = explained(audited.heavy, audited.boards, audited.vocabulary, legal)
    columns = [measured.figures() for measured in audited.measured.values()]
    phases = phases_of(audited.boards)
    records = []
    for row, position in enumerate(audited.positions):
        if row in audited.unanswered:
            continue
        figures = dict(zip(audited.measured, (column[row] for column in columns), strict=True))
        figures[SERVED] = Figure(0.0)  # an answer that leaks is withheld

        illegal, causes = reasons[row]
        records.append(
            AuditRecord(
                time=audited.times[row],
                model=audited.model,
                digest=audited.digest,
                trained_with_mask=audited.trained_with_mask,
                fen=position.fen,
                chess960=position.chess960,
                traits=Traits(
                    position.turn, bool(audited.in_check[row]), phases[row], len(legal[row]), audited.elos[row]
                ),
                leakage=Leakage(figures, illegal, causes),
            )
        )
    return records
