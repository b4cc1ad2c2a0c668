"""`POST /v1/audit`: judges the logits or probabilities of another program's network."""

from __future__ import annotations

import math
from typing import Literal, cast

import orjson
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from movemask.board.moves import legal_moves
from movemask.board.position import Position
from movemask.encoding.vocabularies import vocabulary, vocabulary_names
from movemask.encoding.vocabulary import Castling
from movemask.errors import InvalidAudit
from movemask.leakage.judge_policy import judge_policy
from movemask.leakage.judge_slots import judge_slots
from movemask.schemas.answers import IllegalMoveOut, JudgementOut, PatternName, PatternOut, TopOut
from movemask.schemas.shapes import as_json
from movemask.server.api.requests import MAX_SLOTS, AuditIn
from movemask.server.api.responses import causes_out, fen_out, figures_out
from movemask.server.api.routing import Routes
from movemask.server.edge.keys import KeyScope
from movemask.server.queue.pipeline import PLIES
from movemask.server.services import AppServices

_Judgement, _Top, _Pattern = as_json(JudgementOut), as_json(TopOut), as_json(PatternOut)
_IllegalMove = as_json(IllegalMoveOut)

#: Bytes of a number for each slot of the largest vocabulary, in full, indented and with its move.
_BYTES = 512 << 10

routes = Routes("leakage")


@routes.post(
    "/v1/audit",
    scopes=frozenset({KeyScope.POLICY}),
    summary="Audit another program's logits or probabilities",
    response_model=JudgementOut,
    size=_BYTES,
    # twice, so that a list that is too long is named
    pieces=lambda limits: 2 * (limits.moves + MAX_SLOTS),
    cost=lambda request: 1 + len(request.moves) // PLIES,
)
async def audit(request: AuditIn, http: Request, services: AppServices) -> Response:
    """Checks another program's output: how much probability is on illegal moves, on which ones, and why each is
    illegal. This runs no network and records nothing.

    Send `logits` or `probabilities` with their `vocabulary`, or a `policy` that maps UCI moves to probabilities.
    `patterns` lists the known mistakes that the numbers resemble, such as multiplying by the mask.
    """
    return Response(
        orjson.dumps(await run_in_threadpool(_judged, request)), media_type="application/json"
    )


def _judged(request: AuditIn) -> JudgementOut:
    """The judgement of the numbers of a request."""
    position = Position.read(request.fen, request.moves, chess960=request.chess960)
    threshold, named = request.threshold, request.limit
    if request.policy is not None:
        castling = None if request.castling is None else Castling(request.castling)
        judgement = judge_policy(
            position, request.policy, castling=castling, threshold=threshold, named=named
        )
    else:
        if request.vocabulary not in vocabulary_names():
            raise InvalidAudit(
                f"vocabulary: no {request.vocabulary!r}; available: {', '.join(vocabulary_names())}"
            )
        logits = [-math.inf if number is None else number for number in request.logits or []]
        name: Literal["logits", "probabilities"] = (
            "logits" if request.probabilities is None else "probabilities"
        )
        slots = vocabulary(request.vocabulary)
        judgement = judge_slots(
            name, request.probabilities or logits, position, slots, threshold=threshold, named=named
        )
    return _Judgement(
        fen=fen_out(position),
        turn=position.turn,
        notation=None if position.notation is None else position.notation.value,
        legal_moves=len(legal_moves([position.board]).codes),
        kinds=figures_out(judgement.figures),
        sum=judgement.total,
        top=_Top(uci=judgement.top, legal=judgement.top_is_legal),
        missing=list(judgement.missing),
        causes=causes_out(judgement.causes),
        illegal=[
            _IllegalMove(uci=move.uci, probability=move.probability, cause=move.cause.value)
            for move in judgement.illegal
        ],
        patterns=[
            _Pattern(
                pattern=cast(PatternName, pattern.name), share=pattern.share, detail=pattern.detail
            )
            for pattern in judgement.patterns
        ],
    )
