"""`EncodedPosition`: what one position becomes before it meets the network."""

from __future__ import annotations

from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.move_codes import moves_of
from movemask.board.position import Position


@dataclass(frozen=True, slots=True)
class Elo:
    """Ratings of the side to move and of its opponent."""

    self: float
    opponent: float


@dataclass(frozen=True, slots=True)
class EncodedPosition:
    """One position with its legal moves, as `codes` `[L]` (`move_codes`), and their `slots` `[L]`, rising.

    Its planes are made with those of its batch, in one array.
    """

    position: Position
    codes: NDArray[np.intp]
    slots: NDArray[np.intp]
    in_check: bool
    elo: Elo | None

    @property
    def moves(self) -> tuple[chess.Move, ...]:
        """The legal moves in the order of their slots."""
        return moves_of(self.codes)
