"""`mcp_server`: tools for language models (Model Context Protocol), each a call of `AsyncClient`.

The answers are short and in a player's words: moves in SAN, percentages, ratings and chances by player.
Source: https://modelcontextprotocol.io/specification, and its official library. The library's low-level server is used,
because its high-level server ignores unknown arguments, and lists every error of the arguments in its answer.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

import anyio
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_PARAMS,
    PARSE_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    ListToolsResult,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs, from_json

from movemask.board.rating import MAX_RATING
from movemask.client.http import AsyncClient
from movemask.errors import MovemaskError
from movemask.schemas.answers import ErrorOut, GameOut, SideOut
from movemask.version import __version__

INSTRUCTIONS = """
movemask says which moves people play: a network that learned from human games gives every legal move the probability
that a player of a given rating makes it. It does not say which move is best. Ratings are lichess ratings unless the
model's card says otherwise. The percentages of the legal moves sum to 100.
""".strip()

_MOST_ERRORS = 10  # errors of games in an answer
_LONGEST_ERROR = 500  # characters
_LONGEST_GAMES = 30_000  # characters of the games in an answer, some 10,000 tokens

CANCELLED = "notifications/cancelled"

Json = dict[str, Any]
Context = ServerRequestContext[Any, Any]
Opener = Callable[[Context], AbstractAsyncContextManager[AsyncClient]]

#: What a tool asks the service, and its answer.
Call = Callable[[AsyncClient], Awaitable[BaseModel]]

Fen = Annotated[
    str, Field(description="The position as FEN, or `startpos`; `moves` are played from there.")
]
Moves = Annotated[
    list[str] | None,
    Field(fail_fast=True, description="Moves in SAN or UCI, played from the position: e4 and e5."),
]
Elo = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=MAX_RATING)]
Rating = Annotated[
    Elo | None, Field(description="Rating of the player to move; otherwise the network's default.")
]
Opponent = Annotated[
    Elo | None, Field(description="The opponent's rating; otherwise the same as `rating`.")
]
Ratings = Annotated[
    list[Elo] | None, Field(fail_fast=True, description="By default every 100 from 800 to 2500.")
]
ModelName = Annotated[
    str | None, Field(description="Name of a network; otherwise the service's default.")
]
Top = Annotated[int, Field(ge=1, le=218, description="Most moves to list.")]
Pgn = Annotated[
    str, Field(description="One or more games as PGN; the headers may give both ratings.")
]
Share = Annotated[float, Field(allow_inf_nan=False)]
Shares = Annotated[
    dict[str, Share], Field(description="Moves in UCI and their probabilities, 0 to 1.")
]


class Move(BaseModel):
    san: str
    percent: float


class Illegal(BaseModel):
    uci: str
    percent: float
    why: str | None


class PlayerMoves(BaseModel):
    moves: int
    likeliest_percent: float = Field(description="how many of the moves were the likeliest ones")
    typical_percent: float | None = Field(
        description="the geometric mean of the moves' probabilities"
    )


class Surprise(BaseModel):
    move: str = Field(description="such as 12...Nf6")
    percent: float
    place: int = Field(description="1 if it was the likeliest")


class Game(BaseModel):
    white: str
    black: str
    result: str
    white_moves: PlayerMoves | None
    black_moves: PlayerMoves | None
    surprising: list[Surprise]


class PolicyAnswer(BaseModel):
    model: str
    side_to_move: str
    status: str
    rating: float | None = Field(
        description="of the player to move, as the network used it; null if it takes no rating"
    )
    opponent_rating: float | None
    moves: list[Move]
    other_moves: int = Field(description="legal moves that are not listed")
    win_percent: float | None = Field(
        description="chance of the player to move; null if the network does not give it"
    )
    draw_percent: float | None
    loss_percent: float | None
    illegal_percent: float | None = Field(
        description="what a softmax without a mask would have given to illegal moves"
    )


class RatingMoves(BaseModel):
    rating: float = Field(description="of both players")
    moves: list[Move]


class SweepAnswer(BaseModel):
    model: str
    side_to_move: str
    ratings: list[RatingMoves]


class GameAnswer(BaseModel):
    model: str
    games: list[Game]
    games_left_out: int = Field(
        description="games with a report for which the answer has no room; send fewer at once"
    )
    errors: list[str] = Field(description="why a game has no report")


class AuditAnswer(BaseModel):
    side_to_move: str
    legal_moves: int
    illegal_percent: float | None
    illegal: list[Illegal]
    missing: list[str] = Field(description="legal moves in UCI with no probability")
    mistakes: list[str] = Field(description="known mistakes that the numbers resemble")


class ToolError(Exception):
    """Why a call failed, in words for the language model."""


def policy(
    *,
    fen: Fen = "startpos",
    moves: Moves = None,
    rating: Rating = None,
    opponent_rating: Opponent = None,
    model: ModelName = None,
    top: Top = 5,
) -> Call:
    """The moves that players of a rating make in a position, with percentages, and their chances."""
    if rating is None and opponent_rating is not None:
        raise ToolError("opponent_rating: needs rating as well")

    async def ask(client: AsyncClient) -> PolicyAnswer:
        elo = (
            None
            if rating is None
            else (rating, rating if opponent_rating is None else opponent_rating)
        )
        out = await client.policy(fen, moves=moves, elo=elo, model=model, include=["san"])
        listed = [(move.san or move.uci, move.probability) for move in out.moves]
        return PolicyAnswer(
            model=out.model.name,
            side_to_move=out.turn,
            status=out.status,
            rating=None if out.elo is None else out.elo.own,
            opponent_rating=None if out.elo is None else out.elo.opponent,
            moves=_moves(listed[:top]),
            other_moves=len(listed[top:]),
            win_percent=None if out.value is None else percent(out.value.win),
            draw_percent=None if out.value is None else percent(out.value.draw),
            loss_percent=None if out.value is None else percent(out.value.loss),
            illegal_percent=None if out.leakage is None else percent(out.leakage.raw),
        )

    return ask


def sweep(
    *,
    fen: Fen = "startpos",
    moves: Moves = None,
    ratings: Ratings = None,
    model: ModelName = None,
    top: Top = 3,
) -> Call:
    """How the moves that people make in a position change with the rating of both players."""

    async def ask(client: AsyncClient) -> SweepAnswer:
        options: Any = {} if ratings is None else {"ratings": ratings}
        out = await client.sweep(fen, moves=moves, model=model, include=["san"], **options)
        points = []
        for place, point in enumerate(out.points):
            listed = [(move.san or move.uci, move.probabilities[place]) for move in out.moves]
            listed.sort(key=lambda move: -float(move[1]))
            if point.elo is None:
                raise ToolError(f"{point.model.name} takes no ratings")
            points.append(RatingMoves(rating=point.elo.own, moves=_moves(listed[:top])))
        return SweepAnswer(model=out.points[0].model.name, side_to_move=out.turn, ratings=points)

    return ask


def game(*, pgn: Pgn, model: ModelName = None, top: Top = 10) -> Call:
    """How likely each side's moves were for players of their ratings, and the most surprising ones."""

    async def ask(client: AsyncClient) -> GameAnswer:
        out = await client.games(pgn, model=model)
        errors = [game.error.detail for game in out.games if isinstance(game, ErrorOut)]
        if len(errors) > _MOST_ERRORS:
            errors[_MOST_ERRORS:] = [f"and {len(errors) - _MOST_ERRORS} more"]
        games: list[Game] = []
        room = _LONGEST_GAMES
        reports = [game for game in out.games if not isinstance(game, ErrorOut)]
        for report in reports:
            summary = _summary(report, top)
            room -= len(summary.model_dump_json())
            if games and room < 0:
                break
            games.append(summary)
        return GameAnswer(
            model=out.model.name,
            games=games,
            games_left_out=len(reports) - len(games),
            errors=errors,
        )

    return ask


def audit(*, policy: Shares, fen: Fen = "startpos", moves: Moves = None) -> Call:
    """Checks another model's move probabilities: how much is on illegal moves, and why they are illegal."""

    async def ask(client: AsyncClient) -> AuditAnswer:
        out = await client.audit(fen, moves=moves, policy=policy)
        return AuditAnswer(
            side_to_move=out.turn,
            legal_moves=out.legal_moves,
            illegal_percent=percent(out.kinds["given"].leaked),
            illegal=[
                Illegal(uci=move.uci, percent=_percent(move.probability), why=move.cause)
                for move in out.illegal
            ],
            missing=list(out.missing),
            mistakes=[pattern.detail for pattern in out.patterns],
        )

    return ask


#: The tools, which pydantic reads the schemas of their arguments from, with their titles and answers.
_TOOLS: dict[Any, tuple[str, type[BaseModel]]] = {
    policy: ("Which moves people play here", PolicyAnswer),
    sweep: ("Which moves people play here, by rating", SweepAnswer),
    game: ("How human the moves of a game are", GameAnswer),
    audit: ("How much of a move distribution is on illegal moves", AuditAnswer),
}


def mcp_server(opened: Opener) -> Server[Any]:
    """The tools. `opened` gives a client of the service for a call, whose context says who called."""
    calls: dict[str, TypeAdapter[Call]] = {tool.__name__: TypeAdapter(tool) for tool in _TOOLS}
    tools = [
        Tool(
            name=tool.__name__,
            title=title,
            description=tool.__doc__,
            input_schema=calls[tool.__name__].json_schema(),
            output_schema=answer.model_json_schema(),
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
        )
        for tool, (title, answer) in _TOOLS.items()
    ]
    arguments = {tool.name: tool.input_schema["properties"] for tool in tools}

    def call_of(name: str, values: Json) -> Call:
        if name not in calls:
            raise ToolError(f"there is no tool {name}; available: {', '.join(calls)}")
        # Language models guess names: an argument that a tool does not have is refused, not ignored.
        if unknown := values.keys() - arguments[name]:
            raise ToolError(
                f"{name} has no argument {min(unknown)}; available: {', '.join(arguments[name])}"
            )
        plain = {key: _plain(value, arguments[name][key]) for key, value in values.items()}
        known = {key: value for key, value in plain.items() if value is not None}
        try:
            return calls[name].validate_python(ArgsKwargs((), known))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise ToolError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None

    async def called(context: Context, params: CallToolRequestParams) -> CallToolResult:
        try:
            ask = call_of(params.name, params.arguments or {})
            async with opened(context) as client:
                answer = await ask(client)
        except (ToolError, MovemaskError) as error:
            return CallToolResult(
                content=[TextContent(text=str(error)[:_LONGEST_ERROR])], is_error=True
            )
        out = answer.model_dump()
        text = (
            _told(answer) if isinstance(answer, GameAnswer) else json.dumps(out, ensure_ascii=False)
        )
        return CallToolResult(content=[TextContent(text=text)], structured_content=out)

    async def listed(context: Context, params: object) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    server: Server[Any] = Server(
        "movemask",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
    )
    server.middleware.append(_refuse_text)
    return server


async def serve_stdio(server: Server[Any]) -> None:
    """Serves standard input and output. What was asked before the end of the input is answered.

    The SDK's own loop gives up what is under way when the input ends, so that `movemask mcp < FILE` gets no answers.
    A line that is no message gets a parse error (-32700), where it is silent.
    """
    lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", errors="replace")
    unanswered: set[Any] = set()
    answered = anyio.Condition()
    async with stdio_server(stdin=anyio.wrap_file(lines)) as (read, write):
        to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)

        async def reads() -> None:
            async with to_server:
                async for item in read:
                    if isinstance(item, Exception):
                        fault = ErrorData(
                            code=PARSE_ERROR, message="this line is no JSON-RPC message"
                        )
                        await write.send(
                            SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=fault))
                        )
                        continue
                    if isinstance(item.message, JSONRPCRequest):
                        unanswered.add(item.message.id)
                    elif (
                        isinstance(item.message, JSONRPCNotification)
                        and item.message.method == CANCELLED
                    ):
                        unanswered.discard((item.message.params or {}).get("requestId"))
                    await to_server.send(item)
                async with answered:
                    while unanswered:
                        await answered.wait()

        async def writes() -> None:
            async for item in from_server:
                await write.send(item)
                async with answered:
                    unanswered.discard(getattr(item.message, "id", None))
                    answered.notify_all()

        async with read, write, anyio.create_task_group() as tasks:
            tasks.start_soon(reads)
            tasks.start_soon(writes)
            await server.run(from_client, to_client, server.create_initialization_options())
            tasks.cancel_scope.cancel()


async def _refuse_text(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Middleware. Says what is wrong with arguments that are JSON in a text; the SDK's error gives no reason."""
    if ctx.method == "tools/call" and isinstance((ctx.params or {}).get("arguments"), str):
        raise MCPError(INVALID_PARAMS, "arguments: must be an object, not a text that holds one")
    return await call_next(ctx)


def _plain(value: Any, schema: Json) -> Any:
    """An argument as clients really send it: lists and numbers may come as text, and moves as a line. None is left out,
    and so is an empty text if the argument has a default."""
    if not isinstance(value, str):
        return value
    if _takes(schema, "string"):
        return value or (None if "default" in schema else value)
    if value.strip() in ("", "null"):
        return None
    items = _takes(schema, "array")
    try:
        return from_json(f"[{value}]" if items and not value.lstrip().startswith("[") else value)
    except ValueError:
        return value.replace(",", " ").split() if items else value


def _takes(schema: Json, kind: str) -> bool:
    return schema.get("type") == kind or any(
        kind == option.get("type") for option in schema.get("anyOf", ())
    )


def percent(probability: float | None) -> float | None:
    """A probability in percent, to two decimals and at least two significant digits; None stays."""
    return None if probability is None else _percent(probability)


def _percent(probability: float) -> float:
    return float(f"{100 * probability:.2g}") if probability < 0.001 else round(100 * probability, 2)


def _moves(moves: Sequence[tuple[str, float]]) -> list[Move]:
    return [Move(san=san, percent=_percent(probability)) for san, probability in moves]


def _summary(report: GameOut, top: int) -> Game:
    """A game with its most surprising moves, each with its number, counted from the game's first move."""
    first = 2 if report.moves and report.moves[0].turn == "black" else 1
    surprising = []
    judged = [
        (move.probability, move.rank, move)
        for move in report.moves
        if move.probability is not None and move.rank is not None
    ]
    for probability, rank, move in sorted(judged, key=lambda played: played[0])[:top]:
        name = f"{(move.ply + first) // 2}{'.' if move.turn == 'white' else '...'}{move.san}"
        surprising.append(Surprise(move=name, percent=_percent(probability), place=rank))
    headers = {"White": "?", "Black": "?", "Result": "*"} | report.headers
    return Game(
        white=headers["White"],
        black=headers["Black"],
        result=headers["Result"],
        white_moves=_player(report.white),
        black_moves=_player(report.black),
        surprising=surprising,
    )


def _player(side: SideOut | None) -> PlayerMoves | None:
    if side is None:
        return None
    typical = side.perplexity and 1 / side.perplexity
    return PlayerMoves(
        moves=side.moves, likeliest_percent=_percent(side.top1), typical_percent=percent(typical)
    )


def _told(answer: GameAnswer) -> str:
    """The text beside a game's structured answer: a line a game."""
    lines = [
        f"{game.white} - {game.black} {game.result}: most surprising "
        + (", ".join(f"{move.move} ({move.percent} %)" for move in game.surprising) or "none")
        for game in answer.games
    ]
    left_out = (
        [f"{answer.games_left_out} more games are left out; send fewer at once"]
        if answer.games_left_out
        else []
    )
    return "\n".join([*lines, *left_out, *answer.errors])
