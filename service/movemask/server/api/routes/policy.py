"""`/v1/policy`, `/v1/policy/batch`, `/v1/policy/sweep` and `/v1/move`: a network's answers for positions."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated

import orjson
from fastapi import Query as Parameter
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from movemask.board.position import MAX_LENGTH, Elo, Position
from movemask.board.rating import MAX_RATING
from movemask.errors import LimitExceeded, MovemaskError
from movemask.evaluate import Answer, Evaluator, Query
from movemask.games.forecast import LOOKED_AT, Outlook, forecasts
from movemask.games.sweep import RATINGS, Series, Vary, elos_of, sweep
from movemask.schemas.answers import BatchOut, MoveChosenOut, PolicyOut, SweepOut
from movemask.schemas.choices import Include, PolicyInclude
from movemask.schemas.shapes import Out
from movemask.server.api.caching import cacheable
from movemask.server.api.negotiation import TEXT, preferred
from movemask.server.api.requests import (
    MAX_POSITIONS,
    BatchIn,
    BatchPositionIn,
    InvalidItem,
    ModelName,
    MoveIn,
    PlacedIn,
    PolicyIn,
    SweepIn,
    query_of,
)
from movemask.server.api.responses import move_out, point_out, policy_out, sweep_out, value_out
from movemask.server.api.routing import Routes
from movemask.server.edge.context import context_of, while_connected
from movemask.server.edge.keys import KeyScope
from movemask.server.problems import documented, item_error
from movemask.server.queue.pipeline import PLIES
from movemask.server.services import AppServices, Services

JSON, NDJSON = "application/json", "application/x-ndjson"

#: Positions of a streamed batch that are evaluated together; few, so that the first lines come soon.
_STREAMED_TOGETHER = 64

#: Seconds for which a client may reuse the answer to a GET. Another network may be served after that.
_KEPT_SECONDS = 60

#: Bytes of a position with 1,024 moves, indented; and of its ratings or models.
POSITION_BYTES, SWEEP_BYTES = 64 << 10, 512 << 10

routes = Routes("policy")

#: Largest total number of moves in the positions of a batch. Playing a move takes about 20 µs.
MAX_PLIES = 65_536

#: Most brackets and commas of a position in a batch, without its moves: its fields have 15.
_POSITION_PIECES = 16

_SCOPES = frozenset({KeyScope.POLICY})
_STATUSES = (404, 502, 503)


def positions_of(request: PlacedIn | InvalidItem) -> int:
    """The cost of a position for a client's rate: more with many moves, as in the queue."""
    return 1 + len(request.moves) // PLIES if isinstance(request, PlacedIn) else 1


@routes.post(
    "/v1/policy",
    scopes=_SCOPES,
    summary="Move probabilities for a position",
    response_model=PolicyOut,
    size=POSITION_BYTES,
    compressed=False,
    cost=lambda request: positions_of(request) + LOOKED_AT * ("forecast" in request.include),
    statuses=_STATUSES,
)
async def policy(request: PolicyIn, http: Request, services: AppServices) -> Response:
    """Probabilities for the legal moves of a position, most probable first. They sum to 1. Illegal moves get nothing.

    If there is no legal move, `status` is `checkmate` or `stalemate` and `moves` is empty.
    """
    query = query_of(request)
    include = [name for name in request.include if name != "forecast"]
    if len(include) == len(request.include):
        content = await _content(
            query, request.model, http, services, lambda answer: policy_out(answer, include)
        )
        return Response(content, media_type=JSON)
    evaluator = services.evaluator(request.model, context_of(http.scope))
    coroutine = _with_forecast(query, include, evaluator)
    return Response(await while_connected(http.scope, coroutine), media_type=JSON)


@routes.get(
    "/v1/policy",
    scopes=_SCOPES,
    operation_id="getPolicy",
    summary="Move probabilities for a position, in a link",
    response_model=PolicyOut,
    cached=True,
    responses=documented(404, 422, 502, 503),
)
async def policy_by_link(
    http: Request,
    services: AppServices,
    fen: Annotated[
        str,
        Parameter(max_length=MAX_LENGTH, description="A FEN; `startpos` is the start position."),
    ],
    model: Annotated[
        ModelName | None, Parameter(description="Name of a model; otherwise the default model.")
    ] = None,
    elo: Annotated[
        float | None,
        Parameter(ge=0, le=MAX_RATING, description="Rating of both players, in Elo points."),
    ] = None,
    chess960: Annotated[
        bool, Parameter(description="Read the FEN and write castling as Chess960.")
    ] = False,
) -> Response:
    """The same as `POST /v1/policy`, for links and caches. Use `POST` for moves, two ratings and other options.

    The response has an `ETag`, and a client may reuse it for a minute, so it has no `timing`.
    """
    query = Query(fen=fen, chess960=chess960, elo=None if elo is None else Elo(elo, elo))
    content = await _content(
        query, model, http, services, lambda answer: policy_out(answer, (), timing=False)
    )
    return cacheable(http, content, seconds=_KEPT_SECONDS)


@routes.post(
    "/v1/move",
    scopes=_SCOPES,
    summary="Choose a move",
    response_model=MoveChosenOut,
    size=POSITION_BYTES,
    cost=positions_of,
    statuses=_STATUSES,
)
async def move(request: MoveIn, http: Request, services: AppServices) -> Response:
    """Chooses one move: the most probable (`greedy`), or a random one drawn from the distribution (`sample`). The same
    `seed` always draws the same move."""
    seed = request.seed
    if request.method == "sample" and seed is None:
        seed = secrets.randbits(53)  # every JSON reader can hold 53 bits
    query = query_of(request)
    content = await _content(
        query, request.model, http, services, lambda answer: move_out(answer, request, seed)
    )
    return Response(content, media_type=JSON)


@routes.post(
    "/v1/policy/batch",
    scopes=_SCOPES,
    summary="Move probabilities for many positions",
    response_model=BatchOut,
    pieces=lambda limits: MAX_PLIES + _POSITION_PIECES * (1 + limits.positions),
    cost=lambda request: sum(map(positions_of, request.positions)),
    statuses=_STATUSES,
    responses={
        200: {"content": {NDJSON: TEXT}, "description": "Results in the order of the positions."}
    },
)
async def batch(request: BatchIn, http: Request, services: AppServices) -> Response:
    """Answers many positions at once, in the order you sent them. An invalid position gets an `error` in its place; the
    others are answered. Each result has the `index` of its position, and its `id` if you gave one.

    With `Accept: application/x-ndjson` each result is streamed on a line of its own.
    """
    plies = sum(
        len(position.moves)
        for position in request.positions
        if isinstance(position, BatchPositionIn)
    )
    if plies > MAX_PLIES:
        raise LimitExceeded(
            f"positions: {plies} moves in all; at most {MAX_PLIES} are allowed in one request; "
            "send fewer positions, or a FEN and fewer moves"
        )
    # An unknown model is a 404, before a stream begins.
    evaluator = services.evaluator(request.model, context_of(http.scope))
    if preferred(http.headers.get("accept", ""), (JSON, NDJSON)) == NDJSON:
        return StreamingResponse(_ndjson(request, evaluator, services), media_type=NDJSON)
    results = await while_connected(
        http.scope, _results(request, 0, len(request.positions), evaluator, services)
    )
    return Response(b'{"results":[' + b",".join(results) + b"]}", media_type=JSON)


@routes.post(
    "/v1/policy/sweep",
    scopes=_SCOPES,
    summary="One position at many ratings, or with many models",
    response_model=SweepOut,
    size=SWEEP_BYTES,
    # twice, so that a list that is too long is named
    pieces=lambda limits: 2 * (limits.moves + MAX_POSITIONS),
    cost=lambda request: (
        positions_of(request) - 1 + len(request.ratings or request.models or RATINGS)
    ),
    statuses=_STATUSES,
)
async def policy_sweep(request: SweepIn, http: Request, services: AppServices) -> Response:
    """How the move probabilities of one position change with the rating of one or both players.

    This needs a network that takes ratings. For networks trained for a single rating, list several in `models`
    instead of `ratings`. Each point counts as one answered position in the ledger.
    """
    query = query_of(request)
    most = services.limits.moves
    series = []
    for name in [request.model] if request.models is None else request.models:
        evaluator = services.evaluator(name, context_of(http.scope))
        elos: Sequence[Elo | None] = [query.elo]
        if request.models is None:
            model, vary = evaluator.model, Vary(request.vary or "both")
            elos = elos_of(model.name, model.contract, request.ratings, vary, query.elo)
        series.append(Series(evaluator, elos))
    position = await run_in_threadpool(
        Position.read, query.fen, query.moves, chess960=query.chess960, max_moves=most
    )
    include: list[Include] = ["statistics"] if "statistics" in request.include else []
    coroutine = sweep(series, position, query.rule, lambda answer: point_out(answer, include))
    points = await while_connected(http.scope, coroutine)
    out = await run_in_threadpool(sweep_out, points, position, san="san" in request.include)
    return Response(orjson.dumps(out), media_type=JSON)


async def _with_forecast(
    query: Query, include: Sequence[PolicyInclude], evaluator: Evaluator
) -> bytes:
    """The JSON of a `PolicyOut` with a forecast; raises the position's error."""
    (outcome,) = await evaluator.submit(
        [query], lambda answer, _: (policy_out(answer, include), Outlook.of(answer))
    )
    if isinstance(outcome, MovemaskError):
        raise outcome
    out, outlook = outcome
    (value,) = await forecasts(evaluator, [outlook])
    if isinstance(value, MovemaskError):
        raise value
    if value is not None:
        out.forecast = value_out(value)
    return orjson.dumps(out)


async def _ndjson(
    request: BatchIn, evaluator: Evaluator, services: Services
) -> AsyncIterator[bytes]:
    for start in range(0, len(request.positions), _STREAMED_TOGETHER):
        stop = min(start + _STREAMED_TOGETHER, len(request.positions))
        try:
            results = await _results(request, start, stop, evaluator, services)
        except MovemaskError as error:  # the status has been sent, so every position gets the error
            results = [
                _named(
                    orjson.dumps(item_error(error, services.metrics.problem)),
                    index,
                    request.positions[index],
                )
                for index in range(start, stop)
            ]
        yield b"\n".join([*results, b""])


async def _results(
    request: BatchIn, start: int, stop: int, evaluator: Evaluator, services: Services
) -> list[bytes]:
    """The JSON of the answers or errors of the positions from `start` to `stop`, in order."""
    positions = request.positions[start:stop]
    items = [_query(position, request) for position in positions]

    def write(answer: Answer, _: int) -> bytes:
        return orjson.dumps(policy_out(answer, request.include))

    queries = [item for item in items if isinstance(item, Query)]
    outcomes = iter(await evaluator.submit(queries, write))
    results = []
    for index, (position, item) in enumerate(zip(positions, items, strict=True), start):
        outcome = next(outcomes) if isinstance(item, Query) else item
        if isinstance(outcome, MovemaskError):
            outcome = orjson.dumps(item_error(outcome, services.metrics.problem))
        results.append(_named(outcome, index, position))
    return results


def _query(position: BatchPositionIn | InvalidItem, request: BatchIn) -> Query | MovemaskError:
    try:
        return position.error if isinstance(position, InvalidItem) else query_of(position, request)
    except MovemaskError as error:
        return error


def _named(result: bytes, index: int, position: BatchPositionIn | InvalidItem) -> bytes:
    """The JSON of a result with its `index` and `id` in front. A network thread wrote the rest, without them."""
    name = b"" if position.id is None else b'"id":%b,' % orjson.dumps(position.id)
    return b'{"index":%d,%b%b' % (index, name, result[1:])


async def _content(
    query: Query,
    model: str | None,
    http: Request,
    services: Services,
    write: Callable[[Answer], Out],
) -> bytes:
    """The JSON of the answer to one position; raises its error."""
    evaluator = services.evaluator(model, context_of(http.scope))
    coroutine = evaluator.submit([query], lambda answer, _: orjson.dumps(write(answer)))
    (outcome,) = await while_connected(http.scope, coroutine)
    if isinstance(outcome, MovemaskError):
        raise outcome
    return outcome
