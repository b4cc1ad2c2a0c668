"""`POST /v1/games`: reports on whole games, or the games with the reports as comments; and the games of a text."""

from __future__ import annotations

import io
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from movemask.board.pgn import Game, Parsed, read_games, read_trees
from movemask.board.split import split
from movemask.errors import MovemaskError
from movemask.evaluate import Evaluator
from movemask.games.annotation import annotated
from movemask.games.costs import Costs
from movemask.games.engine import Evaluations
from movemask.games.forecast import LOOKED_AT
from movemask.games.judging import Progress, judged
from movemask.games.reports import (
    GameReport,
    Step,
    completed,
    costs_of,
    evaluated,
    foreseen,
    progress_of,
    reports_of,
    swept,
)
from movemask.games.resemblance import RATINGS, compared, compared_moves
from movemask.network.model import Model
from movemask.schemas.answers import GamesOut, SplitOut
from movemask.server.api.negotiation import TEXT, preferred
from movemask.server.api.requests import GamesIn, SplitIn
from movemask.server.api.responses import (
    evaluated_out,
    game_out,
    games_out,
    moments_out,
    progress_out,
    read_out,
)
from movemask.server.api.routing import Routes
from movemask.server.edge.context import RequestContext, context_of, while_connected
from movemask.server.edge.keys import KeyScope
from movemask.server.problems import counted_problem, item_error
from movemask.server.services import AppServices, Services

JSON, NDJSON, PGN = "application/json", "application/x-ndjson", "application/x-chess-pgn"

#: Characters of a PGN that count as one position against a client's rate, besides its moves: reading takes 5 ms.
_CHARACTERS = 4096

#: Most brackets and commas of a body beside the PGN.
_PIECES = 64

_SCOPES = frozenset({KeyScope.POLICY})

routes = Routes("games")


def _reading_cost(request: GamesIn | SplitIn) -> int:
    """The cost of reading a PGN for a client's rate, without its moves."""
    return 1 + len(request.pgn) // _CHARACTERS


@routes.post(
    "/v1/games",
    scopes=_SCOPES,
    summary="Analyse whole games",
    response_model=GamesOut,
    statuses=(404, 502, 503),
    pieces=lambda limits: _PIECES,
    cost=_reading_cost,  # the moves are charged when they are known
    responses={
        200: {
            "content": {PGN: TEXT, NDJSON: TEXT},
            "description": "Reports on the games, or a PGN.",
        },
    },
)
async def games(request: GamesIn, http: Request, services: AppServices) -> Response:
    """Reports of each move how human it was, what it cost and its leakage. Each side gets its cross-entropy, perplexity
    and share of most probable moves. Each game gets its opening and its key moves. A game that cannot be read gets an
    `error` in its place.

    What moves cost is told by the rules and by `[%eval]` in the PGN, and with `evaluations` in `include` by the
    service's engine, if it has one. An evaluated position costs a client's rate as much as one of the network's.

    With `Accept: application/x-ndjson` the report comes at once, on the first line. Then there is a line for each
    position as the engine evaluates it: the numbers of the `game` and the `position` from 0, White's `score`, the
    `costs` of the moves before and after it, and how far the `engine` is. And one for the `moments` of each `game`.

    With `Accept: application/x-chess-pgn` the games come back as PGN with these figures and the engine's evaluations
    in comments, and `?!`, `?` and `??` after inaccuracies, mistakes and blunders. Add `tree` to `include` for the
    comments and variations of the original.
    """
    context, limit = context_of(http.scope), services.limits.positions
    evaluator, engine = services.evaluator(request.model, context), None

    def charge(positions: int) -> None:
        context.charge(context.charged + positions)

    if "evaluations" in request.include:
        engine = services.engine.for_client(context.client, charge)
    media_type = preferred(http.headers.get("accept", ""), (JSON, NDJSON, PGN))
    if media_type == PGN:
        trees = await run_in_threadpool(list[Parsed], _trees(request, limit))
        _charge(context, request, [parsed.game for parsed in trees])
        coroutine = _annotated(evaluator, trees, request, services, engine, charge)
        return Response(await while_connected(http.scope, coroutine), media_type=PGN)
    read = await run_in_threadpool(_read, request, limit)
    _charge(context, request, read)
    costs = await while_connected(http.scope, costs_of(read, charge))
    looks, progress = None, None
    if engine is not None:  # it begins now, and goes on while the network runs
        looks = judged(engine, costs, reasons="reasons" in request.include)
        progress = progress_of(costs)
    reports = await while_connected(http.scope, _reported(evaluator, read, costs, request, charge))
    if media_type == NDJSON:
        first = await run_in_threadpool(_json, reports, evaluator.model, services, progress)
        steps = None if looks is None else evaluated(looks, reports)
        return StreamingResponse(_lines(first, evaluator, steps, services), media_type=NDJSON)
    if looks is not None:
        reports, last = await while_connected(http.scope, completed(evaluator, looks, reports))
        progress = last or progress
    return Response(
        await run_in_threadpool(_json, reports, evaluator.model, services, progress),
        media_type=JSON,
    )


@routes.post(
    "/v1/games/split",
    scopes=_SCOPES,
    summary="Split a PGN into games",
    response_model=SplitOut,
    pieces=lambda limits: _PIECES,
    cost=_reading_cost,
)
async def split_games(request: SplitIn, http: Request, services: AppServices) -> Response:
    """The games of a PGN as texts with their tags, and the text outside games. This runs no network and records
    nothing.

    Moves are checked only with `tree` in `include`: each part then has the `game` as it was read, or the error, and the
    moves of all games are limited as for `/v1/games`.
    """
    return await run_in_threadpool(_parts, request, services)


def _parts(request: SplitIn, services: Services) -> Response:
    texts: Iterable[Parsed] = (
        _trees(request, services.limits.positions)
        if "tree" in request.include
        else (Parsed(text, None, None) for text in split(io.StringIO(request.pgn)))
    )
    parts = []
    for text, _, game in texts:
        if text is None:
            continue
        part: dict[str, Any] = {"role": text.role, "line": text.line, "text": text.text}
        part["tags"] = text.tags
        if game is not None:
            part["game"] = (
                item_error(game, services.metrics.problem)
                if isinstance(game, MovemaskError)
                else read_out(game)
            )
        parts.append(part)
    return Response(orjson.dumps({"parts": parts}), media_type=JSON)


def _read(request: GamesIn, limit: int) -> list[Game | MovemaskError]:
    """The games, with their variations if `include` names them; raises LimitExceeded for more moves than `limit`."""
    if "tree" in request.include:
        return [parsed.game for parsed in _trees(request, limit) if parsed.game is not None]
    return list(read_games(request.pgn, limit, partial="partial" in request.include))


def _trees(request: GamesIn | SplitIn, limit: int) -> Iterator[Parsed]:
    return read_trees(request.pgn, limit, partial="partial" in request.include)


def _charge(
    context: RequestContext, request: GamesIn, games: Iterable[Game | MovemaskError | None]
) -> None:
    """Charges the client's rate for the moves of the games; raises RateLimited."""
    moves = sum(len(game.plies) for game in games if isinstance(game, Game))
    context.charge(context.charged + moves * (1 + LOOKED_AT * ("forecast" in request.include)))


async def _reported(
    evaluator: Evaluator,
    games: Sequence[Game | MovemaskError],
    costs: Mapping[int, Costs],
    request: GamesIn,
    charge: Callable[[int], None],
) -> list[GameReport | MovemaskError]:
    """The reports on the games, with what `include` names."""
    reports = await reports_of(evaluator, games, request.temperature, costs=costs)
    if "ratings" in request.include and evaluator.model.contract.takes_elo:
        read = [report for report in reports if isinstance(report, GameReport)]
        charge(len(RATINGS) * sum(len(compared_moves(report)) for report in read))
        reports = await compared(evaluator, reports)
    return await foreseen(evaluator, reports) if "forecast" in request.include else reports


async def _lines(
    first: bytes,
    evaluator: Evaluator,
    evaluations: AsyncGenerator[Step, None] | None,
    services: Services,
) -> AsyncIterator[bytes]:
    """The first line; a line for each evaluation; and one for the key moves of each game, once each of its positions is
    evaluated, and again once some are searched deeper."""
    yield first + b"\n"
    if evaluations is None:
        return
    latest: Step | None = None

    async def key_moves(number: int, report: GameReport) -> bytes:
        try:
            report = await swept(evaluator, report)
        except MovemaskError as error:
            # the status has been sent; the key moves come without their ratings
            counted_problem(error, services.metrics.problem)
        return orjson.dumps(moments_out(number, report)) + b"\n"

    async with aclosing(evaluations):
        async for step in evaluations:
            if latest is not None and (latest.game, latest.is_deeper) != (
                step.game,
                step.is_deeper,
            ):
                yield await key_moves(latest.game, latest.report)
            latest = step
            yield orjson.dumps(evaluated_out(step)) + b"\n"
        if latest is not None:
            yield await key_moves(latest.game, latest.report)


async def _annotated(
    evaluator: Evaluator,
    trees: Sequence[Parsed],
    request: GamesIn,
    services: Services,
    engine: Evaluations | None,
    charge: Callable[[int], None],
) -> str:
    """The games with comments. The error of a game is counted, as in JSON."""
    texts = []
    reasons = "reasons" in request.include
    async for game in annotated(
        evaluator, trees, request.temperature, engine=engine, reasons=reasons, charge=charge
    ):
        if isinstance(game.report, MovemaskError):
            counted_problem(game.report, services.metrics.problem)
        texts.append(f"{game}\n\n")
    return "".join(texts)


def _json(
    reports: Sequence[GameReport | MovemaskError],
    model: Model,
    services: Services,
    progress: Progress | None,
) -> bytes:
    """The reports, and the error of a game in its place."""
    temperature = next(
        (game.moves[0].temperature for game in reports if not isinstance(game, MovemaskError)), None
    )
    games = [
        item_error(game, services.metrics.problem)
        if isinstance(game, MovemaskError)
        else game_out(game, model)
        for game in reports
    ]
    return orjson.dumps(games_out(games, model, temperature, progress and progress_out(progress)))
