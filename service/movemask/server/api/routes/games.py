"""`POST /v1/games`: reports on whole games, or the games with the reports as comments; and the games of a text."""

from __future__ import annotations

import io

import orjson
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from movemask.board.split import split
from movemask.errors import MovemaskError
from movemask.evaluate import Evaluator
from movemask.games.annotation import annotated
from movemask.games.forecast import LOOKED_AT
from movemask.games.reports import GameReport, foreseen, report_games
from movemask.network.model import Model
from movemask.schemas.answers import GamesOut, SplitOut
from movemask.server.api.media_types import preferred
from movemask.server.api.requests import GamesIn, SplitIn
from movemask.server.api.responses import game_out, games_out
from movemask.server.api.routing import Routes
from movemask.server.edge.context import context_of, while_connected
from movemask.server.edge.keys import KeyScope
from movemask.server.problems import counted_problem, item_error
from movemask.server.services import AppServices, Services

JSON, PGN = "application/json", "application/x-chess-pgn"

#: Characters of a PGN that count as one position against a client's rate: a move, its number and a space.
_CHARACTERS = 8

#: Positions that the network sees for each move, to tell what it cost (measured: 5).
_JUDGED = 5

#: Most brackets and commas of a body beside the PGN.
_PIECES = 64

_SCOPES = frozenset({KeyScope.POLICY})

routes = Routes("games")


@routes.post(
    "/v1/games",
    scopes=_SCOPES,
    summary="Analyse whole games",
    response_model=GamesOut,
    statuses=(404, 502, 503),
    pieces=lambda limits: _PIECES,
    positions=lambda request: (
        (1 + len(request.pgn) // _CHARACTERS) * (1 + _JUDGED + LOOKED_AT * ("forecast" in request.include))
    ),
    responses={
        200: {"content": {PGN: {"schema": {"type": "string"}}}, "description": "Reports on the games, or a PGN."}
    },
)
async def games(request: GamesIn, http: Request, services: AppServices) -> Response:
    """Reports how human each move was (its probability, rank and surprise), what it cost (`lost`, `mark`) and its
    leakage. Each side gets its cross-entropy, perplexity and share of most probable moves; each game gets its opening
    and its key moves. A game that cannot be read gets an `error` in its place.

    With `Accept: application/x-chess-pgn` the games come back as PGN with these figures in comments, and `?` after
    mistakes and `??` after blunders. Add `tree` to `include` for the comments and variations of the original.
    """
    limit = services.limits.positions
    pipeline = services.models.pipeline(request.model)
    evaluator = pipeline.for_caller(context_of(http.scope))
    if preferred(http.headers.get("accept", ""), (JSON, PGN)) == PGN:
        coroutine = _annotated(evaluator, request, services)
        return Response(await while_connected(http.scope, coroutine), media_type=PGN)
    games = await while_connected(http.scope, _reported(evaluator, request, limit))
    return await run_in_threadpool(_reports, games, pipeline.model, services)


@routes.post(
    "/v1/games/split",
    scopes=_SCOPES,
    summary="Split a PGN into games",
    response_model=SplitOut,
    pieces=lambda limits: _PIECES,
)
async def split_games(request: SplitIn, http: Request, services: AppServices) -> Response:
    """The games of a PGN as texts with their tags, and the text outside games. Moves are not checked: send a game's
    `text` to `/v1/games`. This runs no network and records nothing.
    """
    return await run_in_threadpool(_parts, request.pgn)


def _parts(pgn: str) -> Response:
    parts = [
        {"role": part.role, "line": part.line, "text": part.text, "tags": part.tags} for part in split(io.StringIO(pgn))
    ]
    return Response(orjson.dumps({"parts": parts}), media_type=JSON)


async def _reported(evaluator: Evaluator, request: GamesIn, limit: int) -> list[GameReport | MovemaskError]:
    """The reports on the games, with the trees and forecasts that `include` names."""
    trees = "tree" in request.include
    reports = await report_games(evaluator, request.pgn, request.temperature, max_positions=limit, trees=trees)
    return await foreseen(evaluator, reports) if "forecast" in request.include else reports


async def _annotated(evaluator: Evaluator, request: GamesIn, services: Services) -> str:
    """The games with comments. The error of a game is counted, as in JSON."""
    limit, texts = services.limits.positions, []
    async for game in annotated(evaluator, request.pgn, request.temperature, max_positions=limit):
        if isinstance(game.report, MovemaskError):
            counted_problem(game.report, services.metrics.problem)
        texts.append(f"{game}\n\n")
    return "".join(texts)


def _reports(reports: list[GameReport | MovemaskError], model: Model, services: Services) -> Response:
    """The response with the reports, and the error of a game in its place."""
    temperature = next((game.moves[0].temperature for game in reports if not isinstance(game, MovemaskError)), None)
    games = [
        item_error(game, services.metrics.problem) if isinstance(game, MovemaskError) else game_out(game, model)
        for game in reports
    ]
    return Response(orjson.dumps(games_out(games, model, temperature)), media_type=JSON)
