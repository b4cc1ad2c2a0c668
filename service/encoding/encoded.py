"""`EncodedPosition`: what one position becomes before it meets the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import chess
import numpy as np
from numpy.typing import NDArray

from service.encoding.position import Position


@dataclass(frozen=True, slots=True)
class Elo:
    """Ratings of the side to move and of its opponent."""

    self: float
    opponent: float


@dataclass(frozen=True, slots=True)
class EncodedPosition:
    """One position as a network takes it.

    `planes` is of the encoder's shape, float32 `[C, 8, 8]` for most; `moves` are the legal moves and `slots` `[L]`
    their slots, in the same order.
    """

    position: Position
    planes: NDArray[Any]
    moves: tuple[chess.Move, ...]
    slots: NDArray[np.intp]
    elo: Elo | None
