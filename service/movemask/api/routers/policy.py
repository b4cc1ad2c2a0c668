"""`POST /v1/policy`, `/v1/policy/batch`, `/v1/policy/sweep` and `/v1/move`: a network's answers for positions."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack
from functools import partial

import orjson
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from movemask.api.context import RequestContext, context_of, while_connected
from movemask.api.http.bodies import MAX_PLIES, batch_limits, position_limits, sweep_limits
from movemask.api.http.routes import Router
from movemask.api.problems import item_error
from movemask.api.requests import BatchIn, MoveIn, OneIn, PolicyIn, PositionIn, SweepIn, query_of
from movemask.api.state import AppServices, Services
from movemask.api.writing import move_out, point_out, policy_out, sweep_out, value_out
from movemask.board.position import Position
from movemask.errors import LimitExceeded, MovemaskError
from movemask.games.forecast import LOOKED_AT, Outlook, forecasts
from movemask.games.sweep import RATINGS, Series, Vary, elos_of, sweep
from movemask.pipeline import Answer, Pipeline, Query
from movemask.schemas.answers import BatchOut, MoveChosenOut, PolicyOut, SweepOut
from movemask.schemas.choices import Include

JSON, NDJSON = "application/json", "application/x-ndjson"

#: Positions of a streamed batch that are evaluated together; few, so that the first lines come soon.
_STREAMED_TOGETHER = 64

router = Router(tags=["policy"])


_post = partial(router.post, statuses=(404, 502, 503))


@_post(
    "/v1/policy",
    summary="Move probabilities for a position",
    response_model=PolicyOut,
    limits=position_limits,
    positions=lambda request: 1 + LOOKED_AT * ("forecast" in request.include),
)
async def policy(request: PolicyIn, http: Request, services: AppServices) -> Response:
    """Probabilities for the legal moves of a position, most probable first. They sum to 1; illegal moves get nothing.

    If there is no legal move, `status` is `checkmate` or `stalemate` and `moves` is empty.
    """
    include = [name for name in request.include if name != "forecast"]
    if len(include) == len(request.include):
        return await _respond(request, http, services, lambda answer: orjson.dumps(policy_out(answer, include)))
    query = query_of(request)
    with services.models.lease(request.model) as pipeline:
        coroutine = _with_forecast(query, include, pipeline, context_of(http.scope))
        return Response(await while_connected(http.scope, coroutine), media_type=JSON)


@_post("/v1/move", summary="Choose a move", response_model=MoveChosenOut, limits=position_limits)
async def move(request: MoveIn, http: Request, services: AppServices) -> Response:
    """Chooses one move: the most probable (`greedy`), or a random one drawn from the distribution (`sample`). The same
    `seed` always draws the same move."""
    seed = request.seed
    if request.method == "sample" and seed is None:
        seed = secrets.randbits(53)  # every JSON reader can hold 53 bits
    return await _respond(request, http, services, lambda answer: orjson.dumps(move_out(answer, request, seed)))


@_post(
    "/v1/policy/batch",
    summary="Move probabilities for many positions",
    response_model=BatchOut,
    limits=batch_limits,
    positions=lambda request: len(request.positions),
    responses={200: {"content": {NDJSON: {}}, "description": "Results in the order of the positions."}},
)
async def batch(request: BatchIn, http: Request, services: AppServices) -> Response:
    """Answers many positions at once, in the order you sent them. An invalid position gets an `error` in its place; the
    others are answered.

    With `Accept: application/x-ndjson` each result is streamed on a line of its own.
    """
    plies = sum(len(position.moves) for position in request.positions if isinstance(position, PositionIn))
    if plies > MAX_PLIES:
        raise LimitExceeded(
            f"positions: {plies} moves in all; at most {MAX_PLIES} are allowed in one request; "
            "send fewer positions, or a FEN and fewer moves"
        )
    context = context_of(http.scope)
    with services.models.lease(request.model) as pipeline:  # an unknown model is a 404, before a stream begins
        if NDJSON in http.headers.get("accept", ""):
            return StreamingResponse(_ndjson(request, services, context), media_type=NDJSON)
        results = await while_connected(http.scope, _results(request, request.positions, pipeline, services, context))
    return Response(b'{"results":[' + b",".join(results) + b"]}", media_type=JSON)


@_post(
    "/v1/policy/sweep",
    summary="One position at many ratings, or with many models",
    response_model=SweepOut,
    limits=sweep_limits,
    positions=lambda request: len(request.ratings or request.models or RATINGS),
)
async def policy_sweep(request: SweepIn, http: Request, services: AppServices) -> Response:
    """How the move probabilities of one position change with the rating of one or both players.

    This needs a network that takes ratings. For networks trained for a single rating, list several in `models`
    instead of `ratings`. Each point counts as one answered position in the audit.
    """
    query = query_of(request)
    most = services.settings.max_moves
    with ExitStack() as stack:
        series = []
        for name in [request.model] if request.models is None else request.models:
            pipeline = stack.enter_context(services.models.lease(name))
            model = pipeline.model
            if request.models is None:
                vary = Vary(request.vary or "both")
                series.append(Series(pipeline, elos_of(model.name, model.contract, request.ratings, vary, query.elo)))
            else:
                series.append(Series(pipeline, [query.elo]))
        position = await run_in_threadpool(
            Position.read, query.fen, query.moves, chess960=query.chess960, max_moves=most
        )
        include: list[Include] = ["statistics"] if "statistics" in request.include else []
        coroutine = sweep(
            series, position, query.rule, lambda answer: point_out(answer, include), context_of(http.scope)
        )
        points = await while_connected(http.scope, coroutine)
    out = await run_in_threadpool(sweep_out, points, position, san="san" in request.include)
    return Response(orjson.dumps(out), media_type=JSON)


async def _with_forecast(
    query: Query, include: Sequence[Include], pipeline: Pipeline, context: RequestContext
) -> bytes:
    """The JSON of a `PolicyOut` with a forecast; raises the position's error."""
    (outcome,) = await pipeline.submit(
        [query], lambda answer: (policy_out(answer, include), Outlook.of(answer)), context
    )
    if isinstance(outcome, MovemaskError):
        raise outcome
    out, outlook = outcome
    (value,) = await forecasts(pipeline, [outlook], context)
    if isinstance(value, MovemaskError):
        raise value
    if value is not None:
        out.forecast = value_out(value)
    return orjson.dumps(out)


async def _ndjson(request: BatchIn, services: Services, context: RequestContext) -> AsyncIterator[bytes]:
    with services.models.lease(request.model) as pipeline:
        for start in range(0, len(request.positions), _STREAMED_TOGETHER):
            together = request.positions[start : start + _STREAMED_TOGETHER]
            try:
                results = await _results(request, together, pipeline, services, context)
            except MovemaskError as error:  # the status has been sent, so every position gets the error
                results = [orjson.dumps(item_error(error, services.metrics.problem)) for _ in together]
            yield b"\n".join([*results, b""])


async def _results(
    request: BatchIn,
    positions: Sequence[PositionIn | MovemaskError],
    pipeline: Pipeline,
    services: Services,
    context: RequestContext,
) -> list[bytes]:
    """The JSON of each position's answer or error, in order."""
    items = [_query(position, request) for position in positions]
    queries = [item for item in items if isinstance(item, Query)]

    def write(answer: Answer) -> bytes:
        return orjson.dumps(policy_out(answer, request.include))

    answers = iter(await pipeline.submit(queries, write, context))
    results = (next(answers) if isinstance(item, Query) else item for item in items)
    return [
        result if isinstance(result, bytes) else orjson.dumps(item_error(result, services.metrics.problem))
        for result in results
    ]


def _query(position: PositionIn | MovemaskError, request: BatchIn) -> Query | MovemaskError:
    try:
        return position if isinstance(position, MovemaskError) else query_of(position, request)
    except MovemaskError as error:
        return error


async def _respond(request: OneIn, http: Request, services: Services, write: Callable[[Answer], bytes]) -> Response:
    """The response to one position; raises its error."""
    query = query_of(request)
    with services.models.lease(request.model) as pipeline:
        (outcome,) = await while_connected(http.scope, pipeline.submit([query], write, context_of(http.scope)))
    if isinstance(outcome, MovemaskError):
        raise outcome
    return Response(outcome, media_type=JSON)
