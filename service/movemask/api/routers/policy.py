"""`POST /v1/policy`, `/v1/policy/batch`, `/v1/move`."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence

import orjson
from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from movemask.api import problems
from movemask.api.bodies import batch_limits, position_limits
from movemask.api.routes import Router
from movemask.api.schemas.answers import BatchOut, MoveChosenOut, PolicyOut, Problem
from movemask.api.schemas.requests import BatchIn, InvalidItem, MoveIn, PolicyIn, PositionIn, query_of
from movemask.api.services import AppServices, Services, while_connected
from movemask.api.writing import move_out, policy_out
from movemask.errors import LimitExceeded, MovemaskError
from movemask.pipeline import Answer, Pipeline, Query

JSON, NDJSON = "application/json", "application/x-ndjson"

#: Positions of a streamed batch that are evaluated together; small, so that the first lines come soon.
_STREAMED_TOGETHER = 64

router = Router(tags=["policy"])

_STATUSES = (404, 502, 503)


@router.post(
    "/v1/policy",
    summary="The move distribution of a position",
    response_model=PolicyOut,
    limits=position_limits,
    statuses=_STATUSES,
)
async def policy(request: PolicyIn, http: Request, services: AppServices) -> Response:
    """The move distribution of a position: every bit of probability on legal moves, most probable first.

    Without a legal move the answer has `status` `checkmate` or `stalemate` and no moves.
    """
    return await _answer(request, http, services, lambda answer: orjson.dumps(policy_out(answer, request.include)))


@router.post(
    "/v1/move",
    summary="One move: the best, or a sample",
    response_model=MoveChosenOut,
    limits=position_limits,
    statuses=_STATUSES,
)
async def move(request: MoveIn, http: Request, services: AppServices) -> Response:
    """One move: the most probable (`greedy`), or one drawn by its probability (`sample`; the same `seed` draws the
    same move)."""
    seed = request.seed
    if request.method == "sample" and seed is None:
        seed = secrets.randbits(53)  # what a JSON number holds everywhere
    return await _answer(request, http, services, lambda answer: orjson.dumps(move_out(answer, request, seed)))


@router.post(
    "/v1/policy/batch",
    summary="The move distributions of many positions",
    response_model=BatchOut,
    limits=batch_limits,
    positions=lambda request: len(request.positions),
    statuses=_STATUSES,
    responses={200: {"content": {NDJSON: {}}, "description": "Results in the order of the positions."}},
)
async def batch(request: BatchIn, http: Request, services: AppServices) -> Response:
    """The move distributions of many positions, in order. A bad position becomes an `error` in its place; the others
    are answered.

    `Accept: application/x-ndjson` streams one line per result.
    """
    plies = sum(len(position.moves) for position in request.positions if isinstance(position, PositionIn))
    if plies > services.settings.max_plies:
        raise LimitExceeded(
            f"positions: {plies} moves in all, at most {services.settings.max_plies} are taken in one request "
            "(MOVEMASK_MAX_PLIES); send fewer positions, or a FEN and fewer moves"
        )
    if NDJSON in http.headers.get("accept", ""):
        async with services.pipeline(request.model, http):  # an unknown model is a 404, before the answer begins
            return StreamingResponse(_ndjson(request, http, services), media_type=NDJSON)
    async with services.pipeline(request.model, http) as pipeline:
        results = await while_connected(http, _results(request, request.positions, pipeline, services))
    return Response(b'{"results":[' + b",".join(results) + b"]}", media_type=JSON)


async def _ndjson(request: BatchIn, http: Request, services: Services) -> AsyncIterator[bytes]:
    async with services.pipeline(request.model, http) as pipeline:
        for start in range(0, len(request.positions), _STREAMED_TOGETHER):
            part = request.positions[start : start + _STREAMED_TOGETHER]
            try:
                results = await _results(request, part, pipeline, services)
            except MovemaskError as error:  # the status has been sent, so every position gets the error
                results = [error_out(error, services) for _ in part]
            yield b"\n".join([*results, b""])


async def _results(
    request: BatchIn, positions: Sequence[PositionIn | InvalidItem], pipeline: Pipeline, services: Services
) -> list[bytes]:
    """The answers and errors of positions, as JSON."""
    items = _queries(positions, request)
    queries = [item for item in items if isinstance(item, Query)]
    answered = iter(await pipeline.evaluate(queries, lambda answer: orjson.dumps(policy_out(answer, request.include))))
    results = (next(answered) if isinstance(item, Query) else item for item in items)
    return [result if isinstance(result, bytes) else error_out(result, services) for result in results]


def _queries(positions: Sequence[PositionIn | InvalidItem], request: BatchIn) -> list[Query | Problem]:
    """The query or the problem of each position."""
    queries: list[Query | Problem] = []
    for position in positions:
        if isinstance(position, InvalidItem):
            queries.append(position.problem)
            continue
        try:
            queries.append(query_of(position, request))
        except MovemaskError as error:
            queries.append(problems.problem_of(error))
    return queries


async def _answer(request: PolicyIn, http: Request, services: Services, write: Callable[[Answer], bytes]) -> Response:
    """The response to one position; raises its error."""
    query = query_of(request)
    async with services.pipeline(request.model, http) as pipeline:
        (outcome,) = await while_connected(http, pipeline.evaluate([query], write))
    if isinstance(outcome, MovemaskError):
        raise outcome
    return Response(outcome, media_type=JSON)


def error_out(error: Problem | MovemaskError, services: Services) -> bytes:
    """The JSON of an `ErrorOut`, which takes the place of a failed item; counted in the metrics."""
    problem = error if isinstance(error, Problem) else problems.problem_of(error)
    services.metrics.problem(problem)
    return orjson.dumps({"error": problem.model_dump(mode="json", exclude_unset=True)})
