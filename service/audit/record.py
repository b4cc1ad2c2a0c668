"""`AuditRecord`: what is kept of one answered position."""

from __future__ import annotations

from dataclasses import dataclass

from service.audit.leakage import Leakage


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One answered position. `time` is seconds since the epoch; the model is told by name and digest."""

    time: float
    model: str
    digest: str
    trained_with_mask: bool
    fen: str
    chess960: bool
    turn: str
    legal_moves: int
    leakage: Leakage
