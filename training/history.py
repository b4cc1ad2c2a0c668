"""Positions of a shard as lc0's 112 planes, each with the game before it, from the replay's bitboards.

What `movemask.encoding.lc0` gives for python-chess boards with their moves (tested to be equal), but faster: the
boards before a position are rows of the same replay, and nothing is played again.
"""

from __future__ import annotations

from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.bitboards import mirrored, piece_bitboards, unpacked
from training.replay import EN_PASSANT_SQUARE, KING, OUR_RIGHTS, THEIR_RIGHTS, Positions

BLOCKS, BLOCK, PLANES = 8, 13, 112
_REPEATED, _THEIR_PAWNS = 12, 6
_OTHER_SIDE = [*range(6, 12), *range(6), 12]
_START = np.array(piece_bitboards(chess.Board()), dtype=np.uint64)
_ONE = np.uint64(1)


@dataclass(frozen=True)
class Histories:
    """The positions of a shard and where each one's predecessors are."""

    positions: Positions
    row_of: NDArray[np.int64]  # by first[game] + ply
    first: NDArray[np.int64]  # by game
    repeated: NDArray[np.bool_]  # the position occurred before in its game

    @classmethod
    def of(cls, positions: Positions, lengths: NDArray[np.int64]) -> Histories:
        """Of all positions of a replay, and how many each game has."""
        first = np.cumsum(lengths) - lengths
        row_of = np.empty(len(positions.slot), dtype=np.int64)
        row_of[first[positions.game] + positions.ply] = np.arange(len(positions.slot))
        return cls(positions, row_of, first, _repeated(positions))

    def planes(self, rows: NDArray[np.int64], *, history: bool = True) -> NDArray[np.float32]:
        """float32 `[B, 112, 8, 8]`; without `history` as from a bare FEN, whose position stands for those before it."""
        blocks = np.zeros((len(rows), BLOCKS, BLOCK), dtype=np.uint64)
        if history:
            game, ply = self.positions.game[rows], self.positions.ply[rows].astype(np.int64)
            for back in range(BLOCKS):
                known = np.flatnonzero(ply >= back)  # before the first position are zeros
                earlier = self.row_of[self.first[game[known]] + ply[known] - back]
                found = self._block(earlier)
                found[:, _REPEATED] = np.where(self.repeated[earlier], ~np.uint64(0), np.uint64(0))
                blocks[known, back] = mirrored(found[:, _OTHER_SIDE]) if back % 2 else found
        else:
            blocks[:, 0] = self._block(rows)
            blocks[:, 1:] = self._before_fen(rows)[:, None]
        planes = np.empty((len(rows), PLANES, 8, 8), dtype=np.float32)
        planes[:, : BLOCKS * BLOCK] = unpacked(blocks.reshape(-1, BLOCKS * BLOCK))
        planes[:, BLOCKS * BLOCK :] = self._rest(rows)[:, :, None, None]
        return planes

    def _block(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        found = np.zeros((len(rows), BLOCK), dtype=np.uint64)
        found[:, :_REPEATED] = self.positions.bitboards[rows, :_REPEATED]
        return found

    def _before_fen(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """What lc0 takes for the past of a bare FEN: the position, a pawn that can be taken en passant put back."""
        found = self._block(rows)
        found[(found[:, :_REPEATED] == _START).all(axis=1) & ~self.positions.black[rows]] = 0
        square = self.positions.bitboards[rows, EN_PASSANT_SQUARE]
        found[:, _THEIR_PAWNS] ^= square >> np.uint64(8) | square << np.uint64(8)
        return found

    def _rest(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        found = np.zeros((len(rows), PLANES - BLOCKS * BLOCK), dtype=np.float32)
        bitboards = self.positions.bitboards[rows]
        for side, rights in enumerate((OUR_RIGHTS, THEIR_RIGHTS)):
            king, rooks = bitboards[:, KING + 6 * side], bitboards[:, rights]
            found[:, 2 * side] = rooks & (king - _ONE) != 0
            found[:, 2 * side + 1] = rooks & ~(king | king - _ONE) != 0
        found[:, 4] = self.positions.black[rows]
        found[:, 5] = self.positions.halfmove[rows]
        found[:, 7] = 1.0
        return found


def _repeated(positions: Positions) -> NDArray[np.bool_]:
    """Whether the same side had the same position before, `[N]`: equal by a hash of 64 bits."""
    key = positions.game.astype(np.uint64) << np.uint64(1) | positions.black
    with np.errstate(over="ignore"):
        for column in positions.bitboards.T:
            key = (key ^ column) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
    order = np.argsort(key, kind="stable")  # rows rise with the ply
    found = np.zeros(len(key), dtype=np.bool_)
    found[order[1:]] = key[order[1:]] == key[order[:-1]]
    return found
