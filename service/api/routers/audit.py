"""`POST /v1/audit`: someone else's numbers."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from service.api import problems
from service.api.schemas.audit import AuditIn, VerdictOut, verdict_out
from service.audit.foreign import audited_logits, audited_policy, audited_probabilities
from service.encoding.position import Position
from service.encoding.vocabularies import vocabulary, vocabulary_names
from service.encoding.vocabulary import Vocabulary
from service.errors import InvalidAudit

router = APIRouter(tags=["leakage"])


async def _body(request: Request) -> bytes:
    return await request.body()


def _no_key_twice(body: Annotated[bytes, Depends(_body)]) -> None:
    """Refuses JSON that has a key twice, of which readers silently keep one. Not async: a large body takes its time."""
    json.loads(body, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise InvalidAudit(f"body: the key {key[:40]!r} is given twice")
        seen.add(key)


@router.post(
    "/v1/audit",
    summary="What leaks in someone else's logits or probabilities",
    responses=problems.documented(400, 413, 415, 422),
    dependencies=[Depends(_no_key_twice)],
)
def audit(asked: AuditIn) -> VerdictOut:
    """What leaks in numbers that came from elsewhere: how much, to which moves, and why they are illegal. No
    network is run, and nothing is recorded.

    Give `logits` or `probabilities` with their `vocabulary`, or `policy`, a map of UCI moves to probabilities.
    `patterns` names known mistakes that the numbers look like, such as a mask that was multiplied.
    """
    position = Position.read(asked.fen, asked.moves, chess960=asked.chess960)
    if asked.policy is not None:
        verdict = audited_policy(
            position, asked.policy, castling=asked.castling_form, least=asked.threshold, named=asked.limit
        )
    elif asked.probabilities is not None:
        words = _known(asked.vocabulary)
        verdict = audited_probabilities(position, words, asked.probabilities, least=asked.threshold, named=asked.limit)
    else:
        logits = [-math.inf if number is None else number for number in asked.logits or []]
        words = _known(asked.vocabulary)
        verdict = audited_logits(position, words, logits, least=asked.threshold, named=asked.limit)
    return verdict_out(verdict, position)


def _known(name: str | None) -> Vocabulary:
    if name not in vocabulary_names():
        raise InvalidAudit(f"vocabulary: no {name!r}; there are {', '.join(vocabulary_names())}")
    return vocabulary(name)
