"""The audit record of one answered position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from movemask.leakage.causes import Cause
from movemask.leakage.kinds import MULTIPLIED, RAW, SERVED
from movemask.leakage.traits import Traits


@dataclass(frozen=True, slots=True)
class Figure:
    """One kind for one position.

    leaked : None where it cannot be measured: an illegal logit is NaN or +inf, or the vocabulary rules the mistake out
    flipped : whether the mistake changes the top move
    kl : divergence of the mistaken policy from the right one in nats; None where it is infinite or not measured
    """

    leaked: float | None
    flipped: bool = False
    kl: float | None = 0.0

    @property
    def infinite(self) -> bool:
        """Whether the divergence is infinite: the mistake gives a legal move probability 0."""
        return self.leaked is not None and self.kl is None


@dataclass(frozen=True, slots=True)
class IllegalMass:
    """An illegal slot: its move, the probability that plain softmax gives it, and why it is illegal."""

    uci: str
    probability: float
    cause: Cause


@dataclass(frozen=True, slots=True)
class Leakage:
    """One position's leakage by kind, the illegal moves that took most of `raw`, and the mass by cause."""

    figures: Mapping[str, Figure]
    illegal: tuple[IllegalMass, ...] = ()
    causes: Mapping[Cause, float] = field(default_factory=dict)

    @property
    def raw(self) -> float | None:
        return self.figures[RAW].leaked

    @property
    def multiplied(self) -> float:
        leaked = self.figures[MULTIPLIED].leaked
        assert leaked is not None  # it does not depend on illegal logits
        return leaked

    @property
    def served(self) -> float:
        leaked = self.figures[SERVED].leaked
        assert leaked is not None
        return leaked


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One answered position. `time` is in seconds since the epoch; `model` and `digest` identify the network."""

    time: float
    model: str
    digest: str
    trained_with_mask: bool
    fen: str
    chess960: bool
    traits: Traits
    leakage: Leakage
