"""`POST /v1/games`: the moves of whole games."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from movemask.api import problems
from movemask.api.bodies import games_limits
from movemask.api.direct import DirectRoute
from movemask.api.disconnect import while_connected
from movemask.api.routers.policy import as_json, error_out
from movemask.api.schemas.answers import GamesOut, Told, game_out
from movemask.api.schemas.requests import GamesIn
from movemask.errors import MovemaskError
from movemask.inference.model import Model
from movemask.runtime import Given, Services
from movemask.tasks import games as judging
from movemask.tasks.games import GameJudged

router = APIRouter(tags=["games"])


@router.post(
    "/v1/games",
    summary="How probable the moves of whole games were",
    response_model=GamesOut,
    responses=problems.documented(400, 404, 413, 415, 422, 502, 503),
)
async def games(asked: GamesIn, request: Request, held: Given) -> Response:
    """For each move of each game: its probability, rank, surprise and what would have leaked; for each side the
    cross-entropy, the perplexity and the share of first choices. What is wrong with a game is an `error` in its place.
    """
    limit = held.settings.max_positions
    async with held.serving.lease(asked.model) as batcher:
        judging_all = judging.judged(held.pipeline, batcher, asked.pgn, asked.temperature, max_positions=limit)
        found = await while_connected(request, judging_all)
        return await run_in_threadpool(_told, found, batcher.model, held)


DIRECT = (DirectRoute("/v1/games", GamesIn, games, games_limits),)


def _told(found: list[GameJudged | MovemaskError], model: Model, held: Services) -> Response:
    used = next((game.moves[0].answer.rule.temperature for game in found if not isinstance(game, MovemaskError)), None)
    told: list[Told] = []
    for game in found:
        if isinstance(game, MovemaskError):
            told.append(error_out(game, held))
        else:
            held.metrics.answered(model.name, [move.answer.status for move in game.moves])
            told.append(game_out(game, model).model_dump(mode="json", exclude_unset=True))
    return as_json({"model": {"name": model.name, "digest": model.digest}, "temperature": used, "games": told})
