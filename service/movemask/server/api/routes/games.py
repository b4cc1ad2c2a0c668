"""`POST /v1/games`: reports on whole games, or the games with the reports as comments; and the games of a text."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

import orjson
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from movemask.board.pgn import Game, Parsed, read_games, read_trees
from movemask.board.split import split
from movemask.errors import MovemaskError
from movemask.evaluate import Evaluator
from movemask.games.annotation import annotated
from movemask.games.forecast import LOOKED_AT
from movemask.games.reports import GameReport, foreseen, reports_of
from movemask.network.model import Model
from movemask.schemas.answers import GamesOut, SplitOut
from movemask.server.api.media_types import TEXT, preferred
from movemask.server.api.requests import GamesIn, SplitIn
from movemask.server.api.responses import game_out, games_out
from movemask.server.api.routing import Routes
from movemask.server.edge.context import RequestContext, context_of, while_connected
from movemask.server.edge.keys import KeyScope
from movemask.server.problems import counted_problem, item_error
from movemask.server.services import AppServices, Services

JSON, PGN = "application/json", "application/x-chess-pgn"

#: Characters of a PGN that count as one position against a client's rate, besides its moves: reading takes 5 ms.
_CHARACTERS = 4096

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
    positions=lambda request: 1 + len(request.pgn) // _CHARACTERS,  # the moves are charged when they are known
    responses={
        200: {"content": {PGN: TEXT}, "description": "Reports on the games, or a PGN."}
    },
)
async def games(request: GamesIn, http: Request, services: AppServices) -> Response:
    """Reports how human each move was (its probability, rank and surprise), what it cost (`lost`, `mark`) and its
    leakage. Each side gets its cross-entropy, perplexity and share of most probable moves; each game gets its opening
    and its key moves. A game that cannot be read gets an `error` in its place.

    With `Accept: application/x-chess-pgn` the games come back as PGN with these figures in comments, and `?` after
    mistakes and `??` after blunders. Add `tree` to `include` for the comments and variations of the original.
    """
    context, limit = context_of(http.scope), services.limits.positions
    pipeline = services.models.pipeline(request.model)
    evaluator = pipeline.for_caller(context)
    if preferred(http.headers.get("accept", ""), (JSON, PGN)) == PGN:
        trees = await run_in_threadpool(list[Parsed], read_trees(request.pgn, limit))
        _charge(context, request, [parsed.game for parsed in trees])
        coroutine = _annotated(evaluator, trees, request, services)
        return Response(await while_connected(http.scope, coroutine), media_type=PGN)
    read = await run_in_threadpool(_read, request, limit)
    _charge(context, request, read)
    games = await while_connected(http.scope, _reported(evaluator, read, request))
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


def _read(request: GamesIn, limit: int) -> list[Game | MovemaskError]:
    """The games, with their variations if `include` names them; raises LimitExceeded for more moves than `limit`."""
    if "tree" in request.include:
        return [parsed.game for parsed in read_trees(request.pgn, limit) if parsed.game is not None]
    return list(read_games(request.pgn, limit))


def _charge(context: RequestContext, request: GamesIn, games: Iterable[Game | MovemaskError | None]) -> None:
    """Charges the client's rate for the moves of the games; raises RateLimited."""
    moves = sum(len(game.plies) for game in games if isinstance(game, Game))
    context.charge(context.charged + moves * (1 + LOOKED_AT * ("forecast" in request.include)))


async def _reported(
    evaluator: Evaluator, games: Sequence[Game | MovemaskError], request: GamesIn
) -> list[GameReport | MovemaskError]:
    """The reports on the games, with the forecasts that `include` names."""
    reports = await reports_of(evaluator, games, request.temperature)
    return await foreseen(evaluator, reports) if "forecast" in request.include else reports


async def _annotated(evaluator: Evaluator, trees: Sequence[Parsed], request: GamesIn, services: Services) -> str:
    """The games with comments. The error of a game is counted, as in JSON."""
    texts = []
    async for game in annotated(evaluator, trees, request.temperature):
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
