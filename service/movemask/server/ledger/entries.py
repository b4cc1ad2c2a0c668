"""`AnsweredBatch`, which the recorder takes, and `LedgerTable`, which the ledger writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from uuid import uuid4

import numpy as np

from movemask.board.boards import Flags, phases_of
from movemask.columns import SHARED, Columns
from movemask.evaluate import Answer, Evaluated
from movemask.leakage.cells import Cells, cells_of
from movemask.leakage.explain import Explained, explain
from movemask.leakage.groups import groups_of
from movemask.leakage.measure import Measured, UnmaskedLogits, measure
from movemask.network.model import Batch, Model
from movemask.policy.ragged import Float, Index

#: Longest FEN that is written. Move numbers have no limit, and PostgreSQL's index rows have one.
_LONGEST_FEN = 1_000


@dataclass(frozen=True, slots=True)
class AnsweredBatch:
    """Queries that one model answered together. Its length is the number of positions that the ledger gets.

    answers : without the queries that failed
    evaluated : None if no position has a legal move
    time : in seconds since 1970
    """

    model: Model
    answers: Sequence[Answer]
    evaluated: Evaluated | None
    time: float

    def __len__(self) -> int:
        return sum(answer.evaluated is not None for answer in self.answers)

    @property
    def nbytes(self) -> int:
        """Bytes of its logits, which are most of its memory."""
        return 0 if self.evaluated is None else self.evaluated.unmasked.logits.nbytes


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
    # Not in `__init__`, so that `replace` makes a new one.
    id: str = field(default_factory=lambda: uuid4().hex, init=False, metadata=SHARED)

    def __len__(self) -> int:
        return len(self.fens)

    @classmethod
    def of(
        cls, batches: Sequence[AnsweredBatch], kinds: Sequence[str], threshold: float
    ) -> LedgerTable:
        """Returns the answered positions of one model's batches, with the leakage of these kinds.

        Illegal moves of at least the probability `threshold` are named and get a cause.
        """
        pairs = [(batch, batch.evaluated) for batch in batches if batch.evaluated is not None]
        model, sizes = pairs[0][0].model, [len(evaluated.batch) for _, evaluated in pairs]
        batch = Batch.joined([evaluated.batch for _, evaluated in pairs])
        unmasked = UnmaskedLogits.joined([evaluated.unmasked for _, evaluated in pairs])
        answers = {  # by row of the joined batch; rows that failed have none
            start + answer.row: answer
            for start, (answered, _) in zip(accumulate(sizes, initial=0), pairs, strict=False)
            for answer in answered.answers
            if answer.evaluated is not None
        }
        elos = [answers[row].query.elo if row in answers else None for row in range(len(batch))]
        table = cls(
            model.name,
            model.digest,
            model.trained_with_mask,
            np.repeat([answered.time for answered, _ in pairs], sizes),
            [position.fen for position in batch.positions],
            batch.boards.chess960,
            [None if elo is None else elo.self for elo in elos],
            measure(kinds, unmasked, model.vocabulary, batch.boards.black),
            explain(
                unmasked.heavy(threshold), batch.boards, model.vocabulary, batch.codes, batch.indptr
            ),
            phases_of(batch.boards),
            batch.boards.black,
            batch.in_check,
            batch.counts,
        )
        return table if len(answers) == len(table) else table.rows(sorted(answers))

    def cells(self) -> Cells:
        """Returns the cells of these positions. ValueError for a leakage or a divergence that is no number or is
        negative."""
        return cells_of(self.measured, self.explained.by_cause, self.groups())

    def groups(self) -> Index:
        """Returns the indices into `leakage.groups.groups` of each position, intp `[len(DIMENSIONS), B]`."""
        elos = np.array(self.elos, dtype=np.float64)  # None becomes NaN
        return groups_of(self.phases, self.black, self.in_check, self.legal_moves, elos)

    def sound(self) -> Index:
        """Returns the rows that can be written: their leakages are finite and not negative, or unmeasured."""
        sound = np.isfinite(self.explained.by_cause).all(axis=1)
        sound &= np.array([len(fen) <= _LONGEST_FEN for fen in self.fens], dtype=np.bool_)
        for measured in self.measured.values():
            leaked = measured.leaked
            sound &= np.isnan(leaked) | ((leaked >= 0) & (leaked < np.inf) & ~np.isnan(measured.kl))
        return np.flatnonzero(sound)
