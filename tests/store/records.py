"""Audit records for tests."""

from __future__ import annotations

import time

from movemask.board.boards import Phase
from movemask.leakage.causes import Cause
from movemask.leakage.record import AuditRecord, Figure, IllegalMass, Leakage
from movemask.leakage.traits import Traits


def record(
    raw: float | None = 0.01,
    multiplied: float = 0.001,
    *,
    fen: str = "start",
    model: str = "net",
    digest: str = "sha256:a",
    at: float | None = None,
    trained_with_mask: bool = False,
    turn: str = "white",
    phase: Phase = Phase.OPENING,
    legal_moves: int = 20,
    elo: float | None = None,
    causes: dict[Cause, float] | None = None,
    more: dict[str, Figure] | None = None,
) -> AuditRecord:
    """A record with the given leakage."""
    figures = {
        "raw": Figure(raw, flipped=raw is not None and raw > 0.5, kl=None if raw is None else raw),
        "multiplied": Figure(multiplied),
        **(more or {}),
        "served": Figure(0.0),
    }
    return AuditRecord(
        time=time.time() if at is None else at,
        model=model,
        digest=digest,
        trained_with_mask=trained_with_mask,
        fen=fen,
        chess960=False,
        traits=Traits(turn, False, phase, legal_moves, elo),
        leakage=Leakage(figures, (IllegalMass("e2e5", 0.25, Cause.WRONG_GEOMETRY),), causes or {}),
    )
