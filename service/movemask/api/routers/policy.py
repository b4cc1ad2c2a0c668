"""`POST /v1/policy`, `/v1/policy/batch`, `/v1/policy/sweep`, `/v1/move`, `/v1/games`: what a network says."""

from __future__ import annotations

import io
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack
from functools import partial

import orjson
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from movemask.api import problems
from movemask.api.context import RequestContext, context_of, while_connected
from movemask.api.requests import BatchIn, GamesIn, MoveIn, OneIn, PolicyIn, PositionIn, SweepIn, query_of
from movemask.api.routes import MAX_PLIES, Router, batch_limits, games_limits, position_limits, sweep_limits
from movemask.api.state import AppServices, Services
from movemask.api.writing import game_out, games_out, move_out, point_out, policy_out, sweep_out, value_out
from movemask.board.position import Position
from movemask.errors import LimitExceeded, MovemaskError
from movemask.games.annotation import annotated
from movemask.games.forecast import LOOKED_AT, Outlook, forecasts
from movemask.games.reports import GameReport, foreseen, report_games, unclear
from movemask.games.sweep import RATINGS, Series, Vary, elos_of, sweep
from movemask.pipeline import Answer, Pipeline, Query
from movemask.schemas.answers import BatchOut, GamesOut, MoveChosenOut, PolicyOut, Problem, SweepOut
from movemask.schemas.choices import Include

log = logging.getLogger(__name__)

JSON, NDJSON, PGN = "application/json", "application/x-ndjson", "application/x-chess-pgn"

#: Positions of a streamed batch that are evaluated together; small, so that the first lines come soon.
_STREAMED_TOGETHER = 64

#: Characters of a PGN that count as a position against a client's rate: a move, its number and a space.
_CHARACTERS = 8

router = Router(tags=["policy"])


def _looked_at(request: PolicyIn | GamesIn) -> int:
    """Positions that each one's forecast needs."""
    return LOOKED_AT if "forecast" in request.include else 0


_post = partial(router.post, statuses=(404, 502, 503))


@_post(
    "/v1/policy",
    summary="Move probabilities for a position",
    response_model=PolicyOut,
    limits=position_limits,
    positions=lambda request: 1 + _looked_at(request),
)
async def policy(request: PolicyIn, http: Request, services: AppServices) -> Response:
    """Probabilities for the legal moves of a position, most probable first. They sum to 1; illegal moves get nothing.

    If there is no legal move, `status` is `checkmate` or `stalemate` and `moves` is empty.
    """
    include = [one for one in request.include if one != "forecast"]
    if len(include) == len(request.include):
        return await _answer(request, http, services, lambda answer: orjson.dumps(policy_out(answer, include)))
    query = query_of(request)
    with services.serving.lease(request.model) as pipeline:
        work = _with_forecast(query, include, pipeline, context_of(http.scope))
        return Response(await while_connected(http.scope, work), media_type=JSON)


@_post("/v1/move", summary="Choose a move", response_model=MoveChosenOut, limits=position_limits)
async def move(request: MoveIn, http: Request, services: AppServices) -> Response:
    """Chooses one move: the most probable (`greedy`), or a random one drawn from the distribution (`sample`). The same
    `seed` always draws the same move."""
    seed = request.seed
    if request.method == "sample" and seed is None:
        seed = secrets.randbits(53)  # what a JSON number holds everywhere
    return await _answer(request, http, services, lambda answer: orjson.dumps(move_out(answer, request, seed)))


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
    with services.serving.lease(request.model) as pipeline:  # an unknown model is a 404, before a stream begins
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
        parts = []
        for name in [request.model] if request.models is None else request.models:
            pipeline = stack.enter_context(services.serving.lease(name))
            model = pipeline.model
            if request.models is None:
                vary = Vary(request.vary or "both")
                parts.append(Series(pipeline, elos_of(model.name, model.contract, request.ratings, vary, query.elo)))
            else:
                parts.append(Series(pipeline, [query.elo]))
        position = await run_in_threadpool(
            Position.read, query.fen, query.moves, chess960=query.chess960, max_moves=most
        )
        include: list[Include] = ["statistics"] if "statistics" in request.include else []
        work = sweep(parts, position, query.rule, lambda answer: point_out(answer, include), context_of(http.scope))
        points = await while_connected(http.scope, work)
    out = await run_in_threadpool(sweep_out, points, position, san="san" in request.include)
    return Response(orjson.dumps(out), media_type=JSON)


@_post(
    "/v1/games",
    tags=["games"],
    summary="Analyse whole games",
    response_model=GamesOut,
    limits=games_limits,
    positions=lambda request: (1 + len(request.pgn) // _CHARACTERS) * (1 + _looked_at(request)),
    responses={
        200: {"content": {PGN: {"schema": {"type": "string"}}}, "description": "Reports on the games, or a PGN."}
    },
)
async def games(request: GamesIn, http: Request, services: AppServices) -> Response:
    """Reports how human each move was: its probability, rank, surprise and leakage. Each side gets its cross-entropy,
    perplexity and share of most probable moves; each game gets its opening and its key moments. A game that cannot be
    read gets an `error` in its place.

    With `Accept: application/x-chess-pgn` the games come back as PGN with these figures in comments, and `?!` after
    unlikely moves that cost something. Add `tree` to `include` to keep the comments and variations of the original.
    """
    limit = services.settings.max_positions
    context = context_of(http.scope)
    with services.serving.lease(request.model) as pipeline:
        if PGN in http.headers.get("accept", ""):
            work = _annotated(pipeline, request, services, context)
            return Response(await while_connected(http.scope, work), media_type=PGN)
        games = await while_connected(http.scope, _reported(pipeline, request, limit, context))
    return await run_in_threadpool(_reports, games, pipeline, services, "forecast" in request.include)


async def _reported(
    pipeline: Pipeline, request: GamesIn, limit: int, context: RequestContext
) -> list[GameReport | MovemaskError]:
    """The reports on the games, with what is to be included."""
    trees = "tree" in request.include
    reports = await report_games(
        pipeline, request.pgn, request.temperature, max_positions=limit, trees=trees, caller=context
    )
    every = "forecast" in request.include
    return await foreseen(pipeline, reports, lambda report, place: every or unclear(report, place), context)


async def _with_forecast(
    query: Query, include: Sequence[Include], pipeline: Pipeline, context: RequestContext
) -> bytes:
    """The JSON of a `PolicyOut` with its forecast; raises the position's error."""
    (outcome,) = await pipeline.answer(
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


async def _annotated(pipeline: Pipeline, request: GamesIn, services: Services, context: RequestContext) -> str:
    """The games with comments; what is wrong with one is counted, as in JSON."""
    limit, texts = services.settings.max_positions, []
    pgn = io.StringIO(request.pgn)
    async for game in annotated(pipeline, pgn, request.temperature, max_positions=limit, caller=context):
        if isinstance(game.report, MovemaskError):
            _counted(game.report, services)
        texts.append(f"{game}\n\n")
    return "".join(texts)


def _reports(found: list[GameReport | MovemaskError], pipeline: Pipeline, services: Services, every: bool) -> Response:
    model = pipeline.model
    temperature = next((game.moves[0].temperature for game in found if not isinstance(game, MovemaskError)), None)
    games = [
        problems.error_out(_counted(game, services))
        if isinstance(game, MovemaskError)
        else game_out(game, model, every)
        for game in found
    ]
    return Response(orjson.dumps(games_out(games, model, temperature)), media_type=JSON)


async def _ndjson(request: BatchIn, services: Services, context: RequestContext) -> AsyncIterator[bytes]:
    with services.serving.lease(request.model) as pipeline:
        for start in range(0, len(request.positions), _STREAMED_TOGETHER):
            part = request.positions[start : start + _STREAMED_TOGETHER]
            try:
                results = await _results(request, part, pipeline, services, context)
            except MovemaskError as error:  # the status has been sent, so every position gets the error
                results = [error_out(error, services) for _ in part]
            yield b"\n".join([*results, b""])


async def _results(
    request: BatchIn,
    positions: Sequence[PositionIn | MovemaskError],
    pipeline: Pipeline,
    services: Services,
    context: RequestContext,
) -> list[bytes]:
    """The answers and errors of positions, as JSON."""
    items = [_query(position, request) for position in positions]
    queries = [item for item in items if isinstance(item, Query)]

    def write(answer: Answer) -> bytes:
        return orjson.dumps(policy_out(answer, request.include))

    answered = iter(await pipeline.answer(queries, write, context))
    results = (next(answered) if isinstance(item, Query) else item for item in items)
    return [result if isinstance(result, bytes) else error_out(result, services) for result in results]


def _query(position: PositionIn | MovemaskError, request: BatchIn) -> Query | MovemaskError:
    try:
        return position if isinstance(position, MovemaskError) else query_of(position, request)
    except MovemaskError as error:
        return error


async def _answer(request: OneIn, http: Request, services: Services, write: Callable[[Answer], bytes]) -> Response:
    """The response to one position; raises its error."""
    query = query_of(request)
    with services.serving.lease(request.model) as pipeline:
        work = pipeline.answer([query], write, context_of(http.scope))
        (outcome,) = await while_connected(http.scope, work)
    if isinstance(outcome, MovemaskError):
        raise outcome
    return Response(outcome, media_type=JSON)


def error_out(error: MovemaskError, services: Services) -> bytes:
    """The JSON of a failed item, counted in the metrics."""
    return orjson.dumps(problems.error_out(_counted(error, services)))


def _counted(error: MovemaskError, services: Services) -> Problem:
    """The problem of a failed item, counted in the metrics; a withheld answer is logged, as that of a whole request."""
    problem = problems.problem_of(error)
    services.metrics.problem(problem)
    if problem.name == problems.SERVED_LEAKAGE:
        log.error("%s: %s", type(error).__name__, error)
    return problem
