"""`POST /v1/policy/sweep`: one position at many ratings, or by many networks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import ParamSpec, TypeVar

import orjson
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from movemask.api import problems
from movemask.api.bodies import sweep_limits
from movemask.api.direct import DirectRoute
from movemask.api.disconnect import while_connected
from movemask.api.routers.policy import JSON
from movemask.api.routing import Router
from movemask.api.schemas.requests import query_of
from movemask.api.schemas.sweep import SweepIn, point_of, sweep_out
from movemask.api.schemas.swept import SweepOut
from movemask.api.services import AppServices
from movemask.board.position import Position
from movemask.tasks.sweep import Part, Vary, elos_of, sweep

P = ParamSpec("P")
R = TypeVar("R")

#: Most moves and points that are read and written on the event loop; takes a millisecond at most.
_SMALL = 64

router = Router(tags=["policy"])


@router.post(
    "/v1/policy/sweep",
    summary="One position at many ratings, or by many models",
    response_model=SweepOut,
    responses=problems.documented(400, 404, 413, 415, 422, 502, 503),
)
async def policy_sweep(asked: SweepIn, request: Request, services: AppServices) -> Response:
    """The move distributions of one position at many ratings of one side or of both. The position is read and masked
    once, and all ratings go to the network together.

    A network that plays at one rating is refused; name several such networks in `models`, which take the place of the
    ratings. Every point counts as an answered position in the audit.
    """
    query = query_of(asked)
    most = services.settings.max_moves
    async with AsyncExitStack() as stack:
        parts = []
        for name in [asked.model] if asked.models is None else asked.models:
            pipeline = await stack.enter_async_context(services.serving.lease(name))
            model = pipeline.model
            if asked.models is None:
                vary = Vary(asked.vary or "both")
                parts.append(Part(pipeline, elos_of(model.name, model.contract, asked.ratings, vary, query.elo)))
            else:
                parts.append(Part(pipeline, [query.elo]))
        small = len(query.moves) <= _SMALL and sum(len(part.elos) for part in parts) <= _SMALL
        off_loop = _at_once if small else run_in_threadpool
        position = await off_loop(Position.read, query.fen, query.moves, chess960=query.chess960, max_moves=most)
        statistics = "statistics" in asked.include
        work = sweep(parts, position, query.rule, lambda answer: point_of(answer, statistics))
        points = await while_connected(request, work)
    out = await off_loop(sweep_out, points, position, san="san" in asked.include)
    return Response(orjson.dumps(out), media_type=JSON)


def _positions(asked: SweepIn) -> int:
    """Positions for the client's share; without ratings, as many as there are from 800 to 2500."""
    return len(asked.ratings or asked.models or range(800, 2600, 100))


DIRECT = (DirectRoute("/v1/policy/sweep", SweepIn, policy_sweep, sweep_limits, _positions),)


async def _at_once(work: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """Stands in for `run_in_threadpool` where a thread would cost more than the work."""
    return work(*arguments, **named)
