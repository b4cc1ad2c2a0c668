"""`POST /v1/audit`: the logits or probabilities of someone else's network."""

from __future__ import annotations

import math
from typing import Any, Literal

import orjson
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from movemask.api.bodies import audit_limits
from movemask.api.routes import Router
from movemask.api.schemas.answers import VerdictOut
from movemask.api.schemas.requests import AuditIn
from movemask.api.services import AppServices
from movemask.api.writing import causes_out
from movemask.board.moves import legal_moves
from movemask.board.position import Position
from movemask.encoding.forms import Castling
from movemask.encoding.vocabularies import vocabulary, vocabulary_names
from movemask.encoding.vocabulary import Vocabulary
from movemask.errors import InvalidAudit
from movemask.leakage.foreign import Verdict, audited_policy, audited_slots

router = Router(tags=["leakage"])


@router.post(
    "/v1/audit",
    summary="What leaks in someone else's logits or probabilities",
    response_model=VerdictOut,
    limits=audit_limits,
)
async def audit(request: AuditIn, http: Request, services: AppServices) -> Response:
    """What leaks in numbers that came from elsewhere: how much, to which moves, and why they are illegal. No
    network is run, and nothing is recorded.

    Give `logits` or `probabilities` with their `vocabulary`, or `policy`, a map of UCI moves to probabilities.
    `patterns` names known mistakes that the numbers look like, such as a mask that was multiplied.
    """
    return Response(orjson.dumps(await run_in_threadpool(_verdict, request)), media_type="application/json")


def _verdict(request: AuditIn) -> dict[str, Any]:
    position = Position.read(request.fen, request.moves, chess960=request.chess960)
    least, named = request.threshold, request.limit
    if request.policy is not None:
        castling = None if request.castling is None else Castling(request.castling)
        found = audited_policy(position, request.policy, castling=castling, least=least, named=named)
    else:
        words = _vocabulary(request.vocabulary)
        logits = [-math.inf if number is None else number for number in request.logits or []]
        kind: Literal["logits", "probabilities"] = "logits" if request.probabilities is None else "probabilities"
        found = audited_slots(kind, request.probabilities or logits, position, words, least=least, named=named)
    return _verdict_out(found, position)


def _vocabulary(name: str | None) -> Vocabulary:
    if name not in vocabulary_names():
        raise InvalidAudit(f"vocabulary: no {name!r}; there are {', '.join(vocabulary_names())}")
    return vocabulary(name)


def _verdict_out(verdict: Verdict, position: Position) -> dict[str, Any]:
    """The JSON of a `VerdictOut`."""
    return {
        "fen": position.fen,
        "turn": position.turn,
        "notation": position.notation,
        "legal_moves": len(legal_moves([position.board]).codes),
        "kinds": verdict.figures,
        "sum": verdict.total,
        "top": {"uci": verdict.top, "legal": verdict.top_is_legal},
        "missing": verdict.missing,
        "causes": causes_out(verdict.causes),
        "illegal": verdict.illegal,
        "patterns": [{"pattern": one.name, "share": one.share, "detail": one.detail} for one in verdict.patterns],
    }
