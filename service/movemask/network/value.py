"""`Value`: a network's forecast of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Value(NamedTuple):
    """The forecast of the result for the side to move: three probabilities, and the expected score from 0 to 1.

    The probabilities are None if the network gives only the score.
    """

    win: float | None
    draw: float | None
    loss: float | None
    score: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Value:
        """From `[win, draw, loss]`, or from `[score]`."""
        if len(numbers) == 1:
            return cls(None, None, None, numbers[0])
        win, draw, loss = numbers
        return cls(win, draw, loss, win + draw / 2)

    def flipped(self) -> Value:
        """Returns the same forecast from the point of view of the other side."""
        return Value(self.loss, self.draw, self.win, 1 - self.score)
