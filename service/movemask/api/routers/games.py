"""`POST /v1/games`: how probable the moves of whole games were."""

from __future__ import annotations

import io
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from movemask.api.bodies import games_limits
from movemask.api.routers.policy import JSON, error_out
from movemask.api.routes import Router
from movemask.api.schemas.answers import GamesOut
from movemask.api.schemas.requests import GamesIn
from movemask.api.services import AppServices, Services, while_connected
from movemask.api.writing import game_out
from movemask.errors import MovemaskError
from movemask.pipeline import Pipeline
from movemask.tasks.annotation import annotated
from movemask.tasks.games import GameReport, report_games

PGN = "application/x-chess-pgn"

#: Characters of a PGN that count as a position against a client's rate: a move, its number and a space.
_CHARACTERS = 8

router = Router(tags=["games"])


@router.post(
    "/v1/games",
    summary="How probable the moves of whole games were",
    response_model=GamesOut,
    limits=games_limits,
    positions=lambda request: 1 + len(request.pgn) // _CHARACTERS,
    statuses=(404, 502, 503),
    responses={
        200: {"content": {PGN: {"schema": {"type": "string"}}}, "description": "Reports on the games, or a PGN."}
    },
)
async def games(request: GamesIn, http: Request, services: AppServices) -> Response:
    """For each move of each game: its probability, rank, surprise and what would have leaked; for each side the
    cross-entropy, the perplexity and the share of first choices. What is wrong with a game is an `error` in its place.

    `Accept: application/x-chess-pgn` gives the games as a PGN with this in comments, and `?!` for moves that few would
    make and that cost something.
    """
    limit = services.settings.max_positions
    if PGN in http.headers.get("accept", ""):
        async with services.pipeline(request.model, http) as pipeline:
            return Response(await while_connected(http, _pgn(pipeline, request, limit)), media_type=PGN)
    async with services.pipeline(request.model, http) as pipeline:
        reports = report_games(pipeline, request.pgn, request.temperature, max_positions=limit)
        games = await while_connected(http, reports)
    return await run_in_threadpool(_response, games, pipeline, services)


async def _pgn(pipeline: Pipeline, request: GamesIn, limit: int) -> str:
    """The games with comments."""
    games = annotated(pipeline, io.StringIO(request.pgn), request.temperature, max_positions=limit)
    return "".join([f"{game}\n\n" async for game in games])


def _response(found: list[GameReport | MovemaskError], pipeline: Pipeline, services: Services) -> Response:
    model = pipeline.model
    temperature = next((game.moves[0].temperature for game in found if not isinstance(game, MovemaskError)), None)
    games: list[Any] = [
        orjson.Fragment(error_out(game, services))
        if isinstance(game, MovemaskError)
        else game_out(game, model).model_dump(mode="json", exclude_unset=True)
        for game in found
    ]
    out = {"model": {"name": model.name, "digest": model.digest}, "temperature": temperature, "games": games}
    return Response(orjson.dumps(out), media_type=JSON)
