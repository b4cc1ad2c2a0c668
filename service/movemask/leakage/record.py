"""What is kept of one answered position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from movemask.leakage.causes import Cause
from movemask.leakage.kinds import MULTIPLIED, RAW, SERVED
from movemask.leakage.traits import Traits


@dataclass(frozen=True, slots=True)
class Figure:
    """One kind for one position.

    `leaked` is None where it cannot be measured (an illegal logit that is NaN or +inf, a mistake that this vocabulary
    cannot make). `flipped` says whether the mistake changes the top move; `kl` is the divergence of the mistaken policy
    from the right one in nats, None where it is infinite or not measured.
    """

    leaked: float | None
    flipped: bool = False
    kl: float | None = 0.0

    @property
    def infinite(self) -> bool:
        """Whether the mistake gives a move that can be played no probability at all."""
        return self.leaked is not None and self.kl is None


@dataclass(frozen=True, slots=True)
class IllegalMass:
    """A slot that cannot be played: the move it stands for, the probability that plain softmax gives it, and why."""

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
        assert leaked is not None  # no illegal logit enters it
        return leaked

    @property
    def served(self) -> float:
        leaked = self.figures[SERVED].leaked
        assert leaked is not None
        return leaked


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One answered position. `time` is seconds since the epoch; the model is told by name and digest."""

    time: float
    model: str
    digest: str
    trained_with_mask: bool
    fen: str
    chess960: bool
    traits: Traits
    leakage: Leakage
