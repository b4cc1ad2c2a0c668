"""`POST /v1/policy`, `/v1/policy/batch`, `/v1/move`."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence

import orjson
from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from movemask.answer import Answer, Query
from movemask.api import problems
from movemask.api.bodies import batch_limits, position_limits
from movemask.api.direct import DirectRoute
from movemask.api.disconnect import while_connected
from movemask.api.routing import Router
from movemask.api.schemas.answers import BatchOut, MoveChosenOut, PolicyOut
from movemask.api.schemas.problem import Problem
from movemask.api.schemas.requests import BatchIn, InvalidItem, MoveIn, PolicyIn, PositionIn, query_of
from movemask.api.schemas.writing import move_out, policy_out
from movemask.api.services import AppServices, Services
from movemask.errors import LimitExceeded, MovemaskError
from movemask.pipeline import Pipeline

JSON, NDJSON = "application/json", "application/x-ndjson"

#: Positions of a streamed batch that are evaluated together; small, so that the first lines come soon.
_STREAMED_TOGETHER = 64

router = Router(tags=["policy"])

_PROBLEMS = problems.documented(400, 404, 413, 415, 422, 502, 503)


@router.post("/v1/policy", summary="The move distribution of a position", response_model=PolicyOut, responses=_PROBLEMS)
async def policy(asked: PolicyIn, request: Request, services: AppServices) -> Response:
    """The move distribution of a position: every bit of probability on legal moves, most probable first.

    Without a legal move the answer has `status` `checkmate` or `stalemate` and no moves.
    """
    return await _answer(asked, request, services, lambda answer: orjson.dumps(policy_out(answer, asked.include)))


@router.post("/v1/move", summary="One move: the best, or a sample", response_model=MoveChosenOut, responses=_PROBLEMS)
async def move(asked: MoveIn, request: Request, services: AppServices) -> Response:
    """One move: the most probable (`greedy`), or one drawn by its probability (`sample`; the same `seed` draws the
    same move)."""
    seed = asked.seed
    if asked.method == "sample" and seed is None:
        seed = secrets.randbits(53)  # what a JSON number holds everywhere
    return await _answer(asked, request, services, lambda answer: orjson.dumps(move_out(answer, asked, seed)))


@router.post(
    "/v1/policy/batch",
    summary="The move distributions of many positions",
    response_model=BatchOut,
    responses={**_PROBLEMS, 200: {"content": {NDJSON: {}}, "description": "Results in the order of the positions."}},
)
async def batch(asked: BatchIn, request: Request, services: AppServices) -> Response:
    """The move distributions of many positions, in order. A bad position becomes an `error` in its place; the others
    are answered.

    `Accept: application/x-ndjson` streams one line per result.
    """
    plies = sum(len(position.moves) for position in asked.positions if isinstance(position, PositionIn))
    if plies > services.settings.max_plies:
        raise LimitExceeded(
            f"positions: {plies} moves in all, at most {services.settings.max_plies} are taken in one request "
            "(MOVEMASK_MAX_PLIES); send fewer positions, or a FEN and fewer moves"
        )
    if NDJSON in request.headers.get("accept", ""):
        async with services.serving.lease(asked.model):  # an unknown model is a 404, before the answer begins
            return StreamingResponse(_ndjson(asked, services), media_type=NDJSON)
    async with services.serving.lease(asked.model) as pipeline:
        results = await while_connected(request, _results(asked, asked.positions, pipeline, services))
    return Response(b'{"results":[' + b",".join(results) + b"]}", media_type=JSON)


#: The POST routes, which bypass FastAPI's routing; a test compares them with the routes above.
DIRECT = (
    DirectRoute("/v1/policy", PolicyIn, policy, position_limits),
    DirectRoute("/v1/move", MoveIn, move, position_limits),
    DirectRoute("/v1/policy/batch", BatchIn, batch, batch_limits, lambda asked: len(asked.positions)),
)


async def _ndjson(asked: BatchIn, services: Services) -> AsyncIterator[bytes]:
    async with services.serving.lease(asked.model) as pipeline:
        for start in range(0, len(asked.positions), _STREAMED_TOGETHER):
            part = asked.positions[start : start + _STREAMED_TOGETHER]
            try:
                results = await _results(asked, part, pipeline, services)
            except MovemaskError as error:  # the status has been sent, so every position gets the error
                results = [error_out(error, services) for _ in part]
            yield b"\n".join([*results, b""])


async def _results(
    asked: BatchIn, positions: Sequence[PositionIn | InvalidItem], pipeline: Pipeline, services: Services
) -> list[bytes]:
    """The answers and errors of positions, as JSON."""
    items = _queries(positions, asked)
    queries = [item for item in items if isinstance(item, Query)]
    answered = iter(await pipeline.evaluate(queries, lambda answer: orjson.dumps(policy_out(answer, asked.include))))
    results = (next(answered) if isinstance(item, Query) else item for item in items)
    return [result if isinstance(result, bytes) else error_out(result, services) for result in results]


def _queries(positions: Sequence[PositionIn | InvalidItem], asked: BatchIn) -> list[Query | Problem]:
    """The query or the problem of each position."""
    queries: list[Query | Problem] = []
    for position in positions:
        if isinstance(position, InvalidItem):
            queries.append(position.problem)
            continue
        try:
            queries.append(query_of(position, asked))
        except MovemaskError as error:
            queries.append(problems.problem_of(error))
    return queries


async def _answer(asked: PolicyIn, request: Request, services: Services, write: Callable[[Answer], bytes]) -> Response:
    """The response to one position; raises its error."""
    query = query_of(asked)
    async with services.serving.lease(asked.model) as pipeline:
        (outcome,) = await while_connected(request, pipeline.evaluate([query], write))
    if isinstance(outcome, MovemaskError):
        raise outcome
    return Response(outcome, media_type=JSON)


def error_out(error: Problem | MovemaskError, services: Services) -> bytes:
    """The JSON of an `ErrorOut`, which takes the place of a failed item; counted in the metrics."""
    problem = error if isinstance(error, Problem) else problems.problem_of(error)
    services.metrics.problem(problem)
    return orjson.dumps({"error": problem.model_dump(mode="json", exclude_unset=True)})
