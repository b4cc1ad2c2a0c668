"""The kinds of leakage: their names, their meanings, and which kinds are measured.

To add a kind, name it here, in KINDS and MEANINGS, and give it a method and a branch of `measure` in `measure.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np

RAW = "raw"
MULTIPLIED = "multiplied"
UNNORMALISED = "unnormalised"
UNMIRRORED = "unmirrored"
ROUNDED = "rounded"
SERVED = "served"


@dataclass(frozen=True, slots=True)
class Fill:
    """A mistaken mask: the finite number that it puts in place of illegal logits, and the dtype of the softmax."""

    constant: float
    dtype: np.dtype[np.floating]

    @property
    def name(self) -> str:
        """Such as `filled_1e4_float16`; `filled_min_float16` for the dtype's least number."""
        if self._is_min:
            return f"filled_min_{self.dtype}"
        return f"filled_{-self.constant:.0e}_{self.dtype}".replace("e+0", "e")

    @property
    def description(self) -> str:
        """The number in words."""
        if self._is_min:
            return f"the least number of {self.dtype}"
        return f"{self.constant:.0e}".replace("e+0", "e")

    @property
    def _is_min(self) -> bool:
        return self.constant == float(np.finfo(self.dtype).min)


@cache
def fills() -> dict[str, Fill]:
    """Returns the fills that public code uses, by name."""
    every = (
        Fill(constant, np.dtype(dtype))
        for dtype in (np.float32, np.float16)
        for constant in (-1e4, -1e8, -1e9, float(np.finfo(dtype).min))
    )
    return {fill.name: fill for fill in every}


#: Kinds that an answer reports.
ANSWER_KINDS = (RAW, MULTIPLIED, SERVED)

#: All kinds in display order.
KINDS = (RAW, MULTIPLIED, *fills(), UNNORMALISED, UNMIRRORED, ROUNDED, SERVED)

#: Kinds that are not computed, and the kind whose figures they copy. `unnormalised` leaks as `raw` does.
#: In float16, -1e9 is the same number as -1e8.
DERIVED = {"filled_1e9_float16": "filled_1e8_float16", UNNORMALISED: RAW}

T = TypeVar("T")


def with_derived(figures: Mapping[str, T], unflipped: Callable[[T], T], nothing: T) -> dict[str, T]:
    """Returns the figures by kind in display order, with the DERIVED kinds.

    `unflipped` returns a figure with an unchanged top move; `nothing` is the figure of `served`.
    """
    every = {**figures, SERVED: nothing}
    for kind, source in DERIVED.items():
        if source in every:
            every[kind] = unflipped(every[source]) if kind == UNNORMALISED else every[source]
    return {kind: every[kind] for kind in KINDS if kind in every}


#: Kinds that are computed, in display order. `served` is not: it is 0, because an answer that leaks is withheld.
MEASURED = tuple(kind for kind in KINDS if kind not in DERIVED and kind != SERVED)

#: A line on each kind, for people.
MEANINGS = {
    RAW: "what plain softmax, without any mask, gives to illegal moves",
    MULTIPLIED: "what softmax(logits * mask) gives to illegal moves: their logits become 0, not minus infinity",
    **{
        name: f"illegal logits set to {fill.description}, then softmax in {fill.dtype}: what they keep"
        for name, fill in fills().items()
    },
    UNNORMALISED: "softmax first, mask after, never renormalised: the probability that vanishes; it equals raw",
    UNMIRRORED: "Black's moves looked up as if White were to move: what the policy then gives to illegal moves",
    ROUNDED: "probabilities rounded to 4 places: how far their sum is from 1",
    SERVED: "what movemask's own answer gives to illegal moves: always 0, or it is not served",
}

#: Kinds by which positions are ranked: not `served`, which is always 0, nor `unnormalised`, which equals `raw`.
RANKED = tuple(kind for kind in KINDS if kind not in (SERVED, UNNORMALISED))

#: Kinds without a meaning for a network trained with the legal mask: its mass on illegal slots is arbitrary.
MEANINGLESS_IF_MASKED = (RAW, UNNORMALISED, UNMIRRORED)


@dataclass(frozen=True, slots=True)
class Plan:
    """The kinds to measure.

    always : kinds measured for every position
    share : share of the positions for which every kind is measured; drawn at random for positions answered together
    threshold : smallest plain-softmax probability of an illegal move that is named and gets a cause
    """

    always: tuple[str, ...] = (RAW, MULTIPLIED)
    share: float = 0.0
    threshold: float = 1e-3

    def draw_kinds(self, draw: float) -> tuple[str, ...]:
        """Returns the kinds of positions answered together. `draw` is uniform in [0, 1)."""
        return MEASURED if draw < self.share else self.always
