"""Positions of a shard as Maia-3's tokens, each with the game before it, from the replay's bitboards.

What `movemask.encoding.published` gives for python-chess boards with their moves (tested to be equal), but faster: the
boards before a position are rows of the same replay, and nothing is played again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import unpacked
from movemask.encoding.published import BLOCKS, PIECES, SQUARES
from training.replay import Positions


@dataclass(frozen=True)
class Histories:
    """The positions of a shard and where each one's predecessors are."""

    positions: Positions
    row_of: NDArray[np.int64]  # by first[game] + ply
    first: NDArray[np.int64]  # by game

    @classmethod
    def of(cls, positions: Positions, lengths: NDArray[np.int64]) -> Histories:
        """Of all positions of a replay, and how many each game has."""
        first = np.cumsum(lengths) - lengths
        row_of = np.empty(len(positions.slot), dtype=np.int64)
        row_of[first[positions.game] + positions.ply] = np.arange(len(positions.slot))
        return cls(positions, row_of, first)

    def tokens(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """float32 `[B, 64, 96]`: eight positions, oldest first; a short history repeats its oldest."""
        game, ply = self.positions.game[rows], self.positions.ply[rows].astype(np.int64)
        back = np.arange(BLOCKS)[::-1]
        earlier = self.row_of[self.first[game][:, None] + np.maximum(ply[:, None] - back, 0)]  # [B, 8]
        planes = unpacked(self.positions.bitboards[earlier.ravel(), :PIECES])
        by_square = planes.reshape(len(rows), BLOCKS * PIECES, SQUARES).transpose(0, 2, 1)
        return np.ascontiguousarray(by_square, dtype=np.float32)
