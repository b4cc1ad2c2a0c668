"""`Batch`: positions with their legal moves and slots, the input of a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import chess
import numpy as np

from movemask.board.boards import Boards, Flags
from movemask.board.moves import code_of
from movemask.board.position import Elo, Position
from movemask.numeric.ragged import Float, Index, indptr_of, joined_indptr, restricted, row_lengths


@dataclass(frozen=True, slots=True)
class Batch:
    """B positions and their N legal moves in CSR form. Stays whole until the answers are written.

    positions : as python-chess boards
    boards : the same as bitboards
    codes : intp `[N]`, the legal moves (`move_codes`), each position's in the order of their slots
    slots : intp `[N]`, rising within each position
    indptr : intp `[B + 1]`
    in_check : bool `[B]`
    elo : float64 `[B, 2]`, ratings of the side to move and its opponent as the network gets them; NaN if it takes none
    """

    positions: Sequence[Position]
    boards: Boards
    codes: Index
    slots: Index
    indptr: Index
    in_check: Flags
    elo: Float

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def counts(self) -> Index:
        """Legal moves of each position, `[B]`."""
        return row_lengths(self.indptr)

    def legal(self, row: int) -> slice:
        """The range of one position's legal moves in `codes` and `slots`."""
        return slice(int(self.indptr[row]), int(self.indptr[row + 1]))

    def elo_of(self, row: int) -> Elo | None:
        """The ratings of a position as the network gets them; None if it takes none."""
        mover, opponent = self.elo[row].tolist()
        return None if mover != mover else Elo(mover, opponent)

    def place_of(self, row: int, move: chess.Move) -> int:
        """The index of a legal move among those of its position; ValueError if it is not legal."""
        return int(self.codes[self.legal(row)].tolist().index(code_of(move)))

    def repeated(self, rows: Sequence[int], elo: Float) -> Batch:
        """The positions `rows`, which may repeat, with the ratings `[len(rows), 2]`."""
        spans = [self.legal(row) for row in rows]
        return Batch(
            [self.positions[row] for row in rows],
            self.boards.rows(rows),
            np.concatenate([self.codes[span] for span in spans]),
            np.concatenate([self.slots[span] for span in spans]),
            indptr_of([span.stop - span.start for span in spans]),
            self.in_check[list(rows)],
            elo,
        )

    @classmethod
    def joined(cls, parts: Sequence[Batch]) -> Batch:
        """Batches, concatenated."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            [position for part in parts for position in part.positions],
            Boards.joined([part.boards for part in parts]),
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.slots for part in parts]),
            joined_indptr([part.indptr for part in parts]),
            np.concatenate([part.in_check for part in parts]),
            np.concatenate([part.elo for part in parts]),
        )

    def rows(self, keep: Index) -> Batch:
        """The batch of the positions `keep`, which are in rising order."""
        if len(keep) == len(self):
            return self
        kept = np.zeros(len(self), dtype=np.bool_)
        kept[keep] = True
        moves = np.repeat(kept, self.counts)
        starts = restricted(self.indptr, moves)
        return Batch(
            [self.positions[row] for row in keep.tolist()],
            self.boards.rows(keep),
            self.codes[moves],
            self.slots[moves],
            np.append(starts[:-1][kept], starts[-1]),
            self.in_check[keep],
            self.elo[keep],
        )
