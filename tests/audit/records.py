"""Audit records for tests."""

from __future__ import annotations

import time

from service.audit.leakage import IllegalMass, Leakage
from service.audit.record import AuditRecord


def record(
    raw: float | None = 0.01,
    multiplied: float = 0.001,
    *,
    fen: str = "start",
    model: str = "net",
    digest: str = "sha256:a",
    at: float | None = None,
) -> AuditRecord:
    """A record with the given leakage."""
    return AuditRecord(
        time=time.time() if at is None else at,
        model=model,
        digest=digest,
        trained_with_mask=False,
        fen=fen,
        chess960=False,
        turn="white",
        legal_moves=20,
        leakage=Leakage(raw, multiplied, 0.0, (IllegalMass("e2e5", 0.25),)),
    )
