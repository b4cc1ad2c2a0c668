"""The kinds of leakage: which there are, and what goes with each. A new one is a line here and a function in
`leakage`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

RAW = "raw"
MULTIPLIED = "multiplied"
UNNORMALISED = "unnormalised"
UNMIRRORED = "unmirrored"
ROUNDED = "rounded"
SERVED = "served"


@dataclass(frozen=True, slots=True)
class Fill:
    """A finite number that a mistaken mask writes over illegal logits, and the dtype in which softmax is then taken."""

    constant: float
    dtype: np.dtype[np.floating]

    @property
    def name(self) -> str:
        """`filled_1e4_float16`; `min` for the dtype's own smallest number."""
        if self.constant == float(np.finfo(self.dtype).min):
            return f"filled_min_{self.dtype}"
        return f"filled_{-self.constant:.0e}_{self.dtype}".replace("e+0", "e")

    @property
    def words(self) -> str:
        """The number as people write it."""
        if self.constant == float(np.finfo(self.dtype).min):
            return f"the least number of {self.dtype}"
        return f"-{-self.constant:.0e}".replace("e+0", "e")


@cache
def fills() -> dict[str, Fill]:
    """By name, every constant in every dtype that public code fills with."""
    made = [
        Fill(constant, np.dtype(dtype))
        for dtype in (np.float32, np.float16)
        for constant in (-1e4, -1e8, -1e9, float(np.finfo(dtype).min))
    ]
    return {fill.name: fill for fill in made}


#: In every answer, and so measured for every request.
ALWAYS = (RAW, MULTIPLIED, SERVED)

#: Every kind, in the order in which they are shown.
KINDS = (RAW, MULTIPLIED, *fills(), UNNORMALISED, UNMIRRORED, ROUNDED, SERVED)

#: Every kind in a line, for people.
MEANINGS = {
    RAW: "what plain softmax, without any mask, gives to illegal moves",
    MULTIPLIED: "what softmax(logits * mask) gives to illegal moves: their logits become 0, not minus infinity",
    **{
        name: f"illegal logits set to {fill.words}, then softmax in {fill.dtype}: what they keep"
        for name, fill in fills().items()
    },
    UNNORMALISED: "softmax first, mask after, never renormalised: the probability that vanishes; it equals raw",
    UNMIRRORED: "Black's moves looked up as if White were to move: what the policy then gives to illegal moves",
    ROUNDED: "probabilities rounded to 4 places: how far their sum is from 1",
    SERVED: "what movemask's own answer gives to illegal moves: always 0, or it is not served",
}

#: Kinds that positions can be ranked by: `served` is always 0, `unnormalised` ranks as `raw` does.
RANKED = tuple(kind for kind in KINDS if kind not in (SERVED, UNNORMALISED))

#: Kinds that mean nothing for a network trained with the legal mask, which puts arbitrary mass on illegal slots.
MASK_BLIND = (RAW, UNNORMALISED, UNMIRRORED)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured of the positions of a request.

    `always` for every request; all kinds for a random `share` of them. `least` is the probability of plain softmax from
    which an illegal move is named and its cause is found.
    """

    always: tuple[str, ...] = ALWAYS
    share: float = 0.0
    least: float = 1e-3

    def drawn(self, draw: float) -> tuple[str, ...]:
        """The kinds for a request that drew this number of [0, 1)."""
        return KINDS if draw < self.share else self.always
