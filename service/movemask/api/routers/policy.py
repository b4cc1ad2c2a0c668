"""`POST /v1/policy`, `/v1/policy/batch`, `/v1/move`."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from movemask.answering import Answer, Outcome, Query
from movemask.api import problems
from movemask.api.bodies import batch_limits, position_limits
from movemask.api.direct import DirectRoute
from movemask.api.disconnect import while_connected
from movemask.api.problems import Problem
from movemask.api.schemas.answers import BatchOut, MoveChosenOut, PolicyOut, Told, move_out, policy_out
from movemask.api.schemas.requests import BatchIn, InvalidItem, MoveIn, PolicyIn, PositionIn, query_of
from movemask.errors import LimitExceeded, MovemaskError
from movemask.inference.batcher import Batcher
from movemask.inference.model import Model
from movemask.runtime import Given, Services

NDJSON = "application/x-ndjson"

#: Positions of a streamed batch that are evaluated together: small enough that the first lines come soon.
_STREAMED_TOGETHER = 64

router = APIRouter(tags=["policy"])

_PROBLEMS = problems.documented(400, 404, 413, 415, 422, 502, 503)


@router.post("/v1/policy", summary="The move distribution of a position", response_model=PolicyOut, responses=_PROBLEMS)
async def policy(asked: PolicyIn, request: Request, held: Given) -> Response:
    """The move distribution of a position: every bit of probability on legal moves, most probable first.

    Without a legal move the answer has `status` `checkmate` or `stalemate` and no moves.
    """
    answer, model = await _one(query_of(asked), asked.model, request, held)
    return as_json(policy_out(answer, model, asked.include))


@router.post("/v1/move", summary="One move, the best or one drawn", response_model=MoveChosenOut, responses=_PROBLEMS)
async def move(asked: MoveIn, request: Request, held: Given) -> Response:
    """One move: the most probable (`greedy`), or one drawn by its probability (`sample`, with a `seed` to draw
    it again)."""
    answer, model = await _one(query_of(asked), asked.model, request, held)
    seed = None
    chosen = None
    if asked.method == "sample":
        seed = (
            secrets.randbits(53) if asked.seed is None else asked.seed
        )  # 53 bits: what a JSON number holds everywhere
    if answer.policy is not None:
        chosen = 0 if seed is None else answer.policy.sample(seed)
    return as_json(move_out(answer, model, asked, chosen, seed))


@router.post(
    "/v1/policy/batch",
    summary="The move distributions of many positions",
    response_model=BatchOut,
    responses={**_PROBLEMS, 200: {"content": {NDJSON: {}}, "description": "Results in the order of the positions."}},
)
async def batch(asked: BatchIn, request: Request, held: Given) -> Response:
    """The same for many positions. What is wrong with one is an `error` in its place; the others are answered.

    With `Accept: application/x-ndjson`, a line for each result as it is ready, in order.
    """
    plies = sum(len(position.moves) for position in asked.positions if isinstance(position, PositionIn))
    if plies > held.settings.max_plies:
        raise LimitExceeded(
            f"positions: {plies} moves in all, at most {held.settings.max_plies} are taken in one request "
            "(MOVEMASK_MAX_PLIES); send fewer positions, or a FEN and fewer moves"
        )
    if NDJSON in request.headers.get("accept", ""):
        async with held.serving.lease(asked.model):  # an unknown model is a 404, before the answer begins
            return StreamingResponse(_lines(asked, held), media_type=NDJSON)
    async with held.serving.lease(asked.model) as batcher:
        results = await while_connected(request, _results(asked, asked.positions, batcher, held))
    return await run_in_threadpool(as_json, {"results": results})


#: What the app takes past FastAPI's own steps, as every POST route; a test holds it to the routes above.
DIRECT = (
    DirectRoute("/v1/policy", PolicyIn, policy, position_limits),
    DirectRoute("/v1/move", MoveIn, move, position_limits),
    DirectRoute("/v1/policy/batch", BatchIn, batch, batch_limits),
)


async def _lines(asked: BatchIn, held: Services) -> AsyncIterator[bytes]:
    async with held.serving.lease(asked.model) as batcher:
        for start in range(0, len(asked.positions), _STREAMED_TOGETHER):
            part = asked.positions[start : start + _STREAMED_TOGETHER]
            try:
                results = await _results(asked, part, batcher, held)
            except MovemaskError as error:  # the answer has begun: what stops the rest is said in each place
                results = [error_out(error, held) for _ in part]
            for result in results:
                yield orjson.dumps(result) + b"\n"


async def _results(
    asked: BatchIn, positions: Sequence[PositionIn | InvalidItem], batcher: Batcher, held: Services
) -> list[Told]:
    queries = _queries(positions, asked)
    asked_of = [query for query in queries if isinstance(query, Query)]
    outcomes = await held.pipeline.evaluate(asked_of, batcher) if asked_of else []
    # A thousand answers, with SAN perhaps, take too long to write out on the event loop.
    return await run_in_threadpool(_told, queries, outcomes, asked, batcher.model, held)


def _told(
    queries: Sequence[Query | Problem], outcomes: Sequence[Outcome], asked: BatchIn, model: Model, held: Services
) -> list[Told]:
    following = iter(outcomes)
    results: list[Told] = []
    for query in queries:
        outcome = query if isinstance(query, Problem) else next(following)
        if isinstance(outcome, Answer):
            results.append(policy_out(outcome, model, asked.include))
        else:
            results.append(error_out(outcome, held))
    held.metrics.answered(model.name, [one.status for one in outcomes if isinstance(one, Answer)])
    return results


def _queries(positions: Sequence[PositionIn | InvalidItem], asked: BatchIn) -> list[Query | Problem]:
    """What is asked of each position, or what is wrong with it."""
    found: list[Query | Problem] = []
    for position in positions:
        if isinstance(position, InvalidItem):
            found.append(position.problem)
            continue
        try:
            found.append(query_of(position, asked))
        except MovemaskError as error:
            found.append(problems.problem_of(error))
    return found


async def _one(query: Query, name: str | None, request: Request, held: Services) -> tuple[Answer, Model]:
    async with held.serving.lease(name) as batcher:
        outcome = (await while_connected(request, held.pipeline.evaluate([query], batcher)))[0]
        if isinstance(outcome, MovemaskError):
            raise outcome
        held.metrics.answered(batcher.model.name, [outcome.status])
        return outcome, batcher.model


def error_out(found: Problem | MovemaskError, held: Services) -> Told:
    """What stands in the place of an item that is at fault, as `ErrorOut` has it; counted."""
    told = found if isinstance(found, Problem) else problems.problem_of(found)
    held.metrics.problem(told)
    return {"error": told.model_dump(mode="json", exclude_unset=True)}


def as_json(out: Told) -> Response:
    """The response of an answer."""
    return Response(orjson.dumps(out), media_type="application/json")
