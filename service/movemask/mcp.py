"""`mcp_server`: tools for language models (Model Context Protocol), each a request to the HTTP API.

The answers are short and in a player's words: moves in SAN, percentages, ratings and chances by player.
Source: https://modelcontextprotocol.io/specification, and its official library. The library's low-level server is used,
because its high-level server ignores unknown arguments, and lists every error of the arguments in its answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from httpx2 import AsyncClient, RequestError, Response
from mcp.server import Server, ServerRequestContext
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs

from movemask.version import __version__

INSTRUCTIONS = """
movemask says which moves people play: a network that learned from human games gives every legal move the probability
that a player of a given rating makes it. It does not say which move is best. Ratings are lichess ratings unless the
model's card says otherwise. The percentages of the legal moves sum to 100.
""".strip()

#: Headers of the client's request that are passed on to the API.
_FORWARDED = ("authorization", "host", "x-request-id")

_MOST_ERRORS = 10  # errors of games in an answer
_LONGEST_ERROR = 500  # characters
_MOST_BYTES = 16 * 2**20  # of an answer of the API

Json = dict[str, Any]
Context = ServerRequestContext[Any, Any]
Opener = Callable[[Context], AsyncClient]

#: The request of a tool to the API: path, body, and a function from the API's answer to the tool's answer.
Call = tuple[str, Json, Callable[[Any], BaseModel]]

Fen = Annotated[str, Field(description="The position as FEN, or `startpos`; `moves` are played from there.")]
Moves = Annotated[
    list[str] | None, Field(fail_fast=True, description="Moves in SAN or UCI, played from the position: e4 and e5.")
]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Rating = Annotated[Number | None, Field(description="Rating of the player to move; otherwise the network's default.")]
Opponent = Annotated[Number | None, Field(description="The opponent's rating; otherwise the same as `rating`.")]
Ratings = Annotated[list[Number] | None, Field(fail_fast=True, description="By default every 100 from 800 to 2500.")]
ModelName = Annotated[str | None, Field(description="Name of a network; otherwise the service's default.")]
Top = Annotated[int, Field(ge=1, le=218, description="Most moves to list.")]
Pgn = Annotated[str, Field(description="One or more games as PGN; the headers may give both ratings.")]
Shares = Annotated[dict[str, Number], Field(description="Moves in UCI and their probabilities, 0 to 1.")]


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
    typical_percent: float | None = Field(description="the geometric mean of the moves' probabilities")


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
    win_percent: float | None = Field(description="chance of the player to move; null if the network does not give it")
    draw_percent: float | None
    loss_percent: float | None
    illegal_percent: float | None = Field(description="what a softmax without a mask would have given to illegal moves")


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
    opponent = rating if opponent_rating is None else opponent_rating
    elo = None if rating is None else {"self": rating, "opponent": opponent}

    def shorten(out: Any) -> PolicyAnswer:
        elo, value = out.get("elo") or {}, out.get("value") or {}
        moves = [(move["san"], move["probability"]) for move in out["moves"]]
        return PolicyAnswer(
            model=out["model"]["name"],
            side_to_move=out["turn"],
            status=out["status"],
            rating=elo.get("self"),
            opponent_rating=elo.get("opponent"),
            moves=_moves(moves[:top]),
            other_moves=len(moves[top:]),
            win_percent=percent(value.get("win")),
            draw_percent=percent(value.get("draw")),
            loss_percent=percent(value.get("loss")),
            illegal_percent=percent(out["leakage"]["raw"]),
        )

    return "/v1/policy", {"fen": fen, "moves": moves, "elo": elo, "model": model, "include": ["san"]}, shorten


def sweep(
    *, fen: Fen = "startpos", moves: Moves = None, ratings: Ratings = None, model: ModelName = None, top: Top = 3
) -> Call:
    """How the moves that people make in a position change with the rating of both players."""

    def shorten(out: Any) -> SweepAnswer:
        points = []
        for place, point in enumerate(out["points"]):
            moves = [(move["san"], move["probabilities"][place]) for move in out["moves"]]
            moves.sort(key=lambda move: -float(move[1]))
            points.append(RatingMoves(rating=point["elo"]["self"], moves=_moves(moves[:top])))
        return SweepAnswer(model=out["points"][0]["model"]["name"], side_to_move=out["turn"], ratings=points)

    body = {"fen": fen, "moves": moves, "ratings": ratings, "model": model, "include": ["san"]}
    return "/v1/policy/sweep", body, shorten


def game(*, pgn: Pgn, model: ModelName = None, top: Top = 10) -> Call:
    """How likely each side's moves were for players of their ratings, and the most surprising ones."""

    def shorten(out: Any) -> GameAnswer:
        errors = [game["error"]["detail"] for game in out["games"] if "error" in game]
        if len(errors) > _MOST_ERRORS:
            errors[_MOST_ERRORS:] = [f"and {len(errors) - _MOST_ERRORS} more"]
        games = [_summary(game, top) for game in out["games"] if "error" not in game]
        return GameAnswer(model=out["model"]["name"], games=games, errors=errors)

    return "/v1/games", {"pgn": pgn, "model": model}, shorten


def audit(*, policy: Shares, fen: Fen = "startpos", moves: Moves = None) -> Call:
    """Checks another model's move probabilities: how much is on illegal moves, and why they are illegal."""

    def shorten(out: Any) -> AuditAnswer:
        return AuditAnswer(
            side_to_move=out["turn"],
            legal_moves=out["legal_moves"],
            illegal_percent=percent(out["kinds"]["given"]["leaked"]),
            illegal=[
                Illegal(uci=move["uci"], percent=_percent(move["probability"]), why=move["cause"])
                for move in out["illegal"]
            ],
            missing=out["missing"],
            mistakes=[pattern["detail"] for pattern in out["patterns"]],
        )

    return "/v1/audit", {"fen": fen, "moves": moves, "policy": policy}, shorten


#: The tools, which pydantic reads the schemas of their arguments from, with their titles and answers.
_TOOLS: dict[Any, tuple[str, type[BaseModel]]] = {
    policy: ("Which moves people play here", PolicyAnswer),
    sweep: ("Which moves people play here, by rating", SweepAnswer),
    game: ("How human the moves of a game are", GameAnswer),
    audit: ("How much of a move distribution is on illegal moves", AuditAnswer),
}


def mcp_server(http: Opener, seconds: float | None = None) -> Server[Any]:
    """The tools.

    Parameters
    ----------
    http : opens a client of the service's API for a call, whose context says who called
    seconds : time for the API's whole answer to a call; None for an API in this process, which has limits of its own
    """
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

    def call_of(name: str, given: Json) -> Call:
        if name not in calls:
            raise ToolError(f"there is no tool {name}; available: {', '.join(calls)}")
        # Language models guess names: an argument that a tool does not have is refused, not ignored.
        if unknown := given.keys() - arguments[name]:
            raise ToolError(f"{name} has no argument {min(unknown)}; available: {', '.join(arguments[name])}")
        try:
            return calls[name].validate_python(ArgsKwargs((), given))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise ToolError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None

    async def called(context: Context, params: CallToolRequestParams) -> CallToolResult:
        try:
            path, body, shorten = call_of(params.name, params.arguments or {})
            answer = await _response(http(context), context, path, body, seconds)
            try:
                out = shorten(answer).model_dump()
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                raise ToolError(f"the service's answer is not movemask's: {type(error).__name__}: {error}") from None
        except ToolError as error:
            return CallToolResult(content=[TextContent(text=str(error)[:_LONGEST_ERROR])], is_error=True)
        return CallToolResult(content=[TextContent(text=json.dumps(out, ensure_ascii=False))], structured_content=out)

    async def listed(context: Context, params: object) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    return Server("movemask", version=__version__, instructions=INSTRUCTIONS, on_list_tools=listed, on_call_tool=called)


async def _response(client: AsyncClient, context: Context, path: str, body: Json, seconds: float | None) -> Any:
    """The API's answer; raises ToolError."""
    given = context.request.headers if context.request else {}
    headers = {name: given[name] for name in _FORWARDED if name in given} | {"Accept-Encoding": "identity"}
    sent = {name: value for name, value in body.items() if value is not None}
    try:
        async with asyncio.timeout(seconds), client, client.stream("POST", path, json=sent, headers=headers) as http:
            content = await _content(http)
    except TimeoutError:
        raise ToolError(f"the service did not answer within {seconds:g} s") from None
    except (RequestError, OSError) as error:
        raise ToolError(f"the service cannot be reached: {error}") from None
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        raise ToolError(f"the service answered {http.status_code} without JSON; is it movemask?") from None
    if not http.is_success:
        detail = answer.get("detail") if isinstance(answer, dict) else None
        raise ToolError(detail if isinstance(detail, str) else f"the service answered {http.status_code}")
    return answer


async def _content(http: Response) -> bytes:
    """The body of a response; raises ToolError."""
    if http.headers.get("content-encoding", "identity") != "identity":
        raise ToolError("the service's answer is compressed, which was not asked for")
    content = bytearray()
    async for piece in http.aiter_bytes():
        content += piece
        if len(content) > _MOST_BYTES:
            raise ToolError(f"the service's answer has more than {_MOST_BYTES:,} bytes")
    return bytes(content)


def percent(probability: float | None) -> float | None:
    """A probability in percent, to two decimals and at least two significant digits; None stays."""
    return None if probability is None else _percent(probability)


def _percent(probability: float) -> float:
    return float(f"{100 * probability:.2g}") if probability < 0.001 else round(100 * probability, 2)


def _moves(moves: Sequence[tuple[str, float]]) -> list[Move]:
    return [Move(san=san, percent=_percent(probability)) for san, probability in moves]


def _summary(report: Any, top: int) -> Game:
    """A game with its most surprising moves, each with its number, counted from the game's first move."""
    first = 2 if report["moves"] and report["moves"][0]["turn"] == "black" else 1
    surprising = []
    for move in sorted(report["moves"], key=lambda move: float(move["probability"]))[:top]:
        name = f"{(move['ply'] + first) // 2}{'.' if move['turn'] == 'white' else '...'}{move['san']}"
        surprising.append(Surprise(move=name, percent=_percent(move["probability"]), place=move["rank"]))
    headers = {"White": "?", "Black": "?", "Result": "*"} | report["headers"]
    return Game(
        white=headers["White"],
        black=headers["Black"],
        result=headers["Result"],
        white_moves=_player(report["white"]),
        black_moves=_player(report["black"]),
        surprising=surprising,
    )


def _player(side: Any) -> PlayerMoves | None:
    if side is None:
        return None
    typical = side["perplexity"] and 1 / side["perplexity"]
    return PlayerMoves(moves=side["moves"], likeliest_percent=_percent(side["top1"]), typical_percent=percent(typical))
