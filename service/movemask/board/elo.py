"""`Elo`: the ratings of both players."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Elo:
    """Ratings of the side to move and of its opponent."""

    self: float
    opponent: float
