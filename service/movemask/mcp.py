"""`mcp_server`: tools for language models (Model Context Protocol), each a request to the HTTP API.

The answers are short and in a player's words: moves in SAN, percentages, and whose ratings and whose chances they are.
Source: https://modelcontextprotocol.io/specification, by its official library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from httpx2 import AsyncClient, TransportError
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from movemask import __version__

INSTRUCTIONS = """
movemask tells which moves people play: a network that learned from human games gives every legal move the probability
that a player of a given rating makes it. It does not say which move is best. Ratings are lichess's unless the model's
card says otherwise. Percentages of moves sum to 100 over the legal moves.
"""

#: The request's headers that the API is to see as well.
_FORWARDED = ("authorization", "host", "x-request-id")

Opener = Callable[[Any], AsyncClient]

Fen = Annotated[str, Field(description="The position as FEN, or `startpos`; `moves` are played from it.")]
Moves = Annotated[Sequence[str], Field(description="Moves in SAN or UCI, played from the position, such as e4 and e5.")]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Rating = Annotated[Number | None, Field(description="Rating of the player to move; the network's default if left out.")]
Opponent = Annotated[Number | None, Field(description="The opponent's rating; the same as `rating` if left out.")]
ModelName = Annotated[str | None, Field(description="Name of a network; the service's default if left out.")]
Top = Annotated[int, Field(ge=1, le=218, description="Most moves that are listed.")]


def percent(probability: float | None) -> float | None:
    """A probability in percent, to two decimals and at least two significant digits; None stays."""
    if probability is None:
        return None
    return float(f"{100 * probability:.2g}") if probability < 0.001 else round(100 * probability, 2)


Percent = Annotated[float, BeforeValidator(percent)]
Typical = Annotated[float, BeforeValidator(lambda perplexity: percent(perplexity and 1 / perplexity))]


class At(str):
    """Metadata of a field: where the API's answer has its value, as names with dots between them."""


class _Answer(BaseModel):
    """Base class of answers, which are read from the API's: a field from its own name or from where `At` says."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, answer: Mapping[str, Any]) -> dict[str, Any]:
        found = dict[str, Any]()
        for name, field in cls.model_fields.items():
            found[name] = answer
            for key in next((at for at in field.metadata if isinstance(at, At)), name).split("."):
                found[name] = (found[name] or {}).get(key)
        return found


class MovePercent(_Answer):
    """A legal move and how often it is played."""

    san: str
    percent: Annotated[Percent, At("probability")]


class PolicyAnswer(_Answer):
    """What is played here. `illegal_percent` is what a softmax without a mask would have given to illegal moves."""

    model: Annotated[str, At("model.name")]
    side_to_move: Annotated[str, At("turn")]
    status: str
    rating: Annotated[float | None, At("elo.self")] = Field(
        description="Of the player to move, as the network got it; null if it takes none."
    )
    opponent_rating: Annotated[float | None, At("elo.opponent")]
    moves: list[MovePercent] = Field(description="The likeliest first.")
    other_moves: int = Field(description="Legal moves that are not listed.")
    win_percent: Annotated[Percent | None, At("value.win")] = Field(
        description="Of the player to move; null if the network does not say."
    )
    draw_percent: Annotated[Percent | None, At("value.draw")]
    loss_percent: Annotated[Percent | None, At("value.loss")]
    illegal_percent: Annotated[Percent | None, At("leakage.raw")]


class RatingMoves(_Answer):
    """What is played at one rating of both players."""

    rating: Annotated[float, At("elo.self")]
    moves: list[MovePercent]


class SweepAnswer(_Answer):
    """What is played by rating."""

    model: Annotated[str, At("model.name")]
    side_to_move: Annotated[str, At("turn")]
    ratings: list[RatingMoves]


class SurprisingMove(_Answer):
    """A move of a game, with how likely it was."""

    move: str = Field(description="With its number, such as 12...Nf6.")
    percent: Annotated[Percent, At("probability")]
    place: Annotated[int, At("rank")] = Field(description="1 if it was the likeliest move.")


class PlayerSummary(_Answer):
    """One player's moves."""

    moves: int
    likeliest_percent: Annotated[Percent, At("top1")] = Field(
        description="How many of the moves were the likeliest ones."
    )
    typical_percent: Annotated[Typical | None, At("perplexity")] = Field(
        description="The geometric mean of the moves' probabilities."
    )


class GameSummary(_Answer):
    """How human a game was, by the ratings in its headers."""

    white: Annotated[str, At("headers.White")]
    black: Annotated[str, At("headers.Black")]
    result: Annotated[str, At("headers.Result")]
    white_moves: Annotated[PlayerSummary | None, At("white")]
    black_moves: Annotated[PlayerSummary | None, At("black")]
    surprising: list[SurprisingMove] = Field(description="The least likely first.")


class GamesAnswer(_Answer):
    """A report on each game; `errors` says why there is none on one."""

    model: Annotated[str, At("model.name")]
    games: list[GameSummary]
    errors: list[str]


class IllegalShare(_Answer):
    """An illegal move in a distribution."""

    uci: str
    percent: Annotated[Percent, At("probability")]
    why: Annotated[str | None, At("cause")]


class AuditAnswer(_Answer):
    """What of a distribution cannot be played, and why."""

    side_to_move: Annotated[str, At("turn")]
    legal_moves: int
    illegal_percent: Annotated[Percent | None, At("kinds.given.leaked")]
    illegal: list[IllegalShare]
    missing: list[str] = Field(description="Legal moves in UCI that have no probability at all.")
    mistakes: list[str] = Field(description="Known mistakes that the numbers resemble.")


class _Strict(MCPServer[Any]):
    """Language models guess names: an argument that a tool does not have is refused, not ignored."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None) -> Any:
        for tool in await self.list_tools():
            known = tool.input_schema["properties"]
            unknown = ", ".join(sorted(arguments.keys() - known.keys()))
            if tool.name == name and unknown:
                raise ToolError(f"{name} has no argument {unknown}; there are {', '.join(known)}")
        return await super().call_tool(name, arguments, context)


def mcp_server(http: Opener) -> MCPServer[Any]:
    """The tools. `http` opens a client of the service's API for a tool's context, which it may take the headers of."""
    server = _Strict("movemask", version=__version__, instructions=INSTRUCTIONS.strip(), log_level="ERROR")
    read_only = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    async def ask(context: Context[Any, Any], path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        headers = {name: value for name, value in (context.headers or {}).items() if name.lower() in _FORWARDED}
        sent = {name: value for name, value in body.items() if value is not None}
        try:
            async with http(context) as client:
                answer = await client.post(path, json=sent, headers=headers)
        except TransportError as error:
            raise ToolError(f"the service cannot be reached: {error}") from None
        content: dict[str, Any] = answer.json()
        if not answer.is_success:
            raise ToolError(content.get("detail", f"the service answered {answer.status_code}"))
        return content

    @server.tool(title="Which moves people play here", annotations=read_only)
    async def policy(
        context: Context[Any, Any],
        fen: Fen = "startpos",
        moves: Moves = (),
        rating: Rating = None,
        opponent_rating: Opponent = None,
        model: ModelName = None,
        top: Top = 5,
    ) -> PolicyAnswer:
        """The moves that players of a rating make in a position, with percentages, and their chances."""
        elo = _elo(rating, opponent_rating)
        body = {"fen": fen, "moves": list(moves), "elo": elo, "model": model, "include": ["san"]}
        answer = await ask(context, "/v1/policy", body)
        listed = {"moves": answer["moves"][:top], "other_moves": max(0, len(answer["moves"]) - top)}
        return PolicyAnswer.model_validate(answer | listed)

    @server.tool(title="Which moves people play here, by rating", annotations=read_only)
    async def sweep(
        context: Context[Any, Any],
        fen: Fen = "startpos",
        moves: Moves = (),
        ratings: Annotated[list[Number] | None, Field(description="800 to 2500 by hundreds if left out.")] = None,
        model: ModelName = None,
        top: Top = 3,
    ) -> SweepAnswer:
        """How the moves that people make in a position change with the rating of both players."""
        body = {"fen": fen, "moves": list(moves), "ratings": ratings, "model": model, "include": ["san"]}
        answer = await ask(context, "/v1/policy/sweep", body)
        points = answer["points"]
        ratings = [point | {"moves": _likeliest(answer["moves"], place, top)} for place, point in enumerate(points)]
        return SweepAnswer.model_validate(answer | {"model": points[0]["model"], "ratings": ratings})

    @server.tool(title="How human the moves of a game are", annotations=read_only)
    async def game(
        context: Context[Any, Any],
        pgn: Annotated[str, Field(description="A game as PGN, or several; their headers may give both ratings.")],
        model: ModelName = None,
        top: Top = 10,
    ) -> GamesAnswer:
        """How likely each side's moves were for players of their ratings, and the most surprising ones."""
        answer = await ask(context, "/v1/games", {"pgn": pgn, "model": model})
        games = [_game(one, top) for one in answer["games"] if "error" not in one]
        errors = [one["error"]["detail"] for one in answer["games"] if "error" in one]
        return GamesAnswer.model_validate(answer | {"games": games, "errors": errors})

    @server.tool(title="Whether a distribution of moves can be played", annotations=read_only)
    async def audit(
        context: Context[Any, Any],
        policy: Annotated[dict[str, Number], Field(description="Moves in UCI and their probabilities, 0 to 1.")],
        fen: Fen = "startpos",
        moves: Moves = (),
    ) -> AuditAnswer:
        """Checks the probabilities that another model gives to moves: how much is on illegal ones, and why."""
        answer = await ask(context, "/v1/audit", {"fen": fen, "moves": list(moves), "policy": policy})
        return AuditAnswer.model_validate(answer | {"mistakes": [one["detail"] for one in answer["patterns"]]})

    return server


def _elo(rating: float | None, opponent: float | None) -> dict[str, float] | None:
    if rating is None:
        if opponent is not None:
            raise ToolError("opponent_rating: goes with rating")
        return None
    return {"self": rating, "opponent": rating if opponent is None else opponent}


def _likeliest(moves: Sequence[dict[str, Any]], place: int, top: int) -> list[dict[str, Any]]:
    """The likeliest moves at one point of a sweep."""
    at_point = [{"san": move["san"], "probability": move["probabilities"][place]} for move in moves]
    return sorted(at_point, key=lambda move: -float(move["probability"]))[:top]


def _game(report: dict[str, Any], top: int) -> dict[str, Any]:
    """The report with its most surprising moves, each with its number, counted from the game's first move."""
    headers = {"White": "?", "Black": "?", "Result": "*"} | report["headers"]
    surprising = sorted(report["moves"], key=lambda move: float(move["probability"]))[:top]
    first = 2 if report["moves"] and report["moves"][0]["turn"] == "black" else 1
    for move in surprising:
        dots = "." if move["turn"] == "white" else "..."
        move["move"] = f"{(move['ply'] + first) // 2}{dots}{move['san']}"
    return report | {"headers": headers, "surprising": surprising}
