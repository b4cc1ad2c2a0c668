"""`POST /v1/policy/sweep`: one position at many ratings, or by many networks."""

from __future__ import annotations

from contextlib import AsyncExitStack

import orjson
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from movemask.api.bodies import sweep_limits
from movemask.api.routers.policy import JSON
from movemask.api.routes import Router
from movemask.api.schemas.answers import SweepOut
from movemask.api.schemas.requests import SweepIn, query_of
from movemask.api.services import AppServices, while_connected
from movemask.api.writing import point_of, sweep_out
from movemask.board.position import Position
from movemask.tasks.sweep import Part, Vary, elos_of, sweep

router = Router(tags=["policy"])


def _positions(request: SweepIn) -> int:
    """Positions for the client's share; without ratings, as many as there are from 800 to 2500."""
    return len(request.ratings or request.models or range(800, 2600, 100))


@router.post(
    "/v1/policy/sweep",
    summary="One position at many ratings, or by many models",
    response_model=SweepOut,
    limits=sweep_limits,
    positions=_positions,
    statuses=(404, 502, 503),
)
async def policy_sweep(request: SweepIn, http: Request, services: AppServices) -> Response:
    """The move distributions of one position at many ratings of one side or of both. The position is read and masked
    once, and all ratings go to the network together.

    A network that plays at one rating is refused; name several such networks in `models`, which take the place of the
    ratings. Every point counts as an answered position in the audit.
    """
    query = query_of(request)
    most = services.settings.max_moves
    async with AsyncExitStack() as stack:
        parts = []
        for name in [request.model] if request.models is None else request.models:
            pipeline = await stack.enter_async_context(services.pipeline(name, http))
            model = pipeline.model
            if request.models is None:
                vary = Vary(request.vary or "both")
                parts.append(Part(pipeline, elos_of(model.name, model.contract, request.ratings, vary, query.elo)))
            else:
                parts.append(Part(pipeline, [query.elo]))
        position = await run_in_threadpool(
            Position.read, query.fen, query.moves, chess960=query.chess960, max_moves=most
        )
        statistics = "statistics" in request.include
        work = sweep(parts, position, query.rule, lambda answer: point_of(answer, statistics))
        points = await while_connected(http, work)
    out = await run_in_threadpool(sweep_out, points, position, san="san" in request.include)
    return Response(orjson.dumps(out), media_type=JSON)
