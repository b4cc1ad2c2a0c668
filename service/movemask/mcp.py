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
from pydantic import BaseModel, Field

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


class MovePercent(BaseModel):
    """A legal move and how often it is played."""

    san: str
    percent: float


class PolicyAnswer(BaseModel):
    """What is played here. `illegal_percent` is what a softmax without a mask would have given to illegal moves."""

    model: str
    side_to_move: str
    status: str
    rating: float | None = Field(description="Of the player to move, as the network got it; null if it takes none.")
    opponent_rating: float | None
    moves: list[MovePercent] = Field(description="The likeliest first.")
    other_moves: int = Field(description="Legal moves that are not listed.")
    win_percent: float | None = Field(description="Of the player to move; null if the network does not say.")
    draw_percent: float | None
    loss_percent: float | None
    illegal_percent: float | None


class RatingMoves(BaseModel):
    """What is played at one rating of both players."""

    rating: float
    moves: list[MovePercent]


class SweepAnswer(BaseModel):
    """What is played by rating."""

    model: str
    side_to_move: str
    ratings: list[RatingMoves]


class SurprisingMove(BaseModel):
    """A move of a game, with how likely it was."""

    move: str = Field(description="With its number, such as 12...Nf6.")
    percent: float
    place: int = Field(description="1 if it was the likeliest move.")


class PlayerSummary(BaseModel):
    """One player's moves."""

    moves: int
    likeliest_percent: float = Field(description="How many of the moves were the likeliest ones.")
    typical_percent: float | None = Field(description="The geometric mean of the moves' probabilities.")


class GameSummary(BaseModel):
    """How human a game was, by the ratings in its headers."""

    white: str
    black: str
    result: str
    white_moves: PlayerSummary | None
    black_moves: PlayerSummary | None
    surprising: list[SurprisingMove] = Field(description="The least likely first.")


class GamesAnswer(BaseModel):
    """A report on each game; `errors` says why there is none on one."""

    model: str
    games: list[GameSummary]
    errors: list[str]


class IllegalShare(BaseModel):
    """An illegal move in a distribution."""

    uci: str
    percent: float
    why: str | None


class AuditAnswer(BaseModel):
    """What of a distribution cannot be played, and why."""

    side_to_move: str
    legal_moves: int
    illegal_percent: float | None
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
        body = {
            "fen": fen,
            "moves": list(moves),
            "elo": _elo(rating, opponent_rating),
            "model": model,
            "include": ["san"],
        }
        answer = await ask(context, "/v1/policy", body)
        elo, value, leakage = (answer.get(name, {}) for name in ("elo", "value", "leakage"))
        return PolicyAnswer(
            model=answer["model"]["name"],
            side_to_move=answer["turn"],
            status=answer["status"],
            rating=elo.get("self"),
            opponent_rating=elo.get("opponent"),
            moves=[MovePercent(san=one["san"], percent=percent(one["probability"])) for one in answer["moves"][:top]],
            other_moves=max(0, len(answer["moves"]) - top),
            win_percent=percent(value.get("win")),
            draw_percent=percent(value.get("draw")),
            loss_percent=percent(value.get("loss")),
            illegal_percent=percent(leakage.get("raw")),
        )

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
        return SweepAnswer(
            model=answer["points"][0]["model"]["name"],
            side_to_move=answer["turn"],
            ratings=[
                RatingMoves(rating=point["elo"]["self"], moves=_likeliest(answer["moves"], place, top))
                for place, point in enumerate(answer["points"])
            ],
        )

    @server.tool(title="How human the moves of a game are", annotations=read_only)
    async def game(
        context: Context[Any, Any],
        pgn: Annotated[str, Field(description="A game as PGN, or several; their headers may give both ratings.")],
        model: ModelName = None,
        top: Top = 10,
    ) -> GamesAnswer:
        """How likely each side's moves were for players of their ratings, and the most surprising ones."""
        answer = await ask(context, "/v1/games", {"pgn": pgn, "model": model})
        good = [one for one in answer["games"] if "error" not in one]
        return GamesAnswer(
            model=answer["model"]["name"],
            games=[_game(one, top) for one in good],
            errors=[one["error"]["detail"] for one in answer["games"] if "error" in one],
        )

    @server.tool(title="Whether a distribution of moves can be played", annotations=read_only)
    async def audit(
        context: Context[Any, Any],
        policy: Annotated[dict[str, Number], Field(description="Moves in UCI and their probabilities, 0 to 1.")],
        fen: Fen = "startpos",
        moves: Moves = (),
    ) -> AuditAnswer:
        """Checks the probabilities that another model gives to moves: how much is on illegal ones, and why."""
        answer = await ask(context, "/v1/audit", {"fen": fen, "moves": list(moves), "policy": policy})
        return AuditAnswer(
            side_to_move=answer["turn"],
            legal_moves=answer["legal_moves"],
            illegal_percent=percent(answer["kinds"]["given"]["leaked"]),
            illegal=[
                IllegalShare(uci=one["uci"], percent=percent(one["probability"]), why=one["cause"])
                for one in answer["illegal"]
            ],
            missing=answer["missing"],
            mistakes=[one["detail"] for one in answer["patterns"]],
        )

    return server


def percent(probability: float | None) -> Any:
    """A probability in percent, to two decimals and at least two significant digits; None stays."""
    if probability is None:
        return None
    return float(f"{100 * probability:.2g}") if probability < 0.001 else round(100 * probability, 2)


def _elo(rating: float | None, opponent: float | None) -> dict[str, float] | None:
    if rating is None:
        if opponent is not None:
            raise ToolError("opponent_rating: goes with rating")
        return None
    return {"self": rating, "opponent": rating if opponent is None else opponent}


def _likeliest(moves: Sequence[dict[str, Any]], place: int, top: int) -> list[MovePercent]:
    """The likeliest moves at one point of a sweep."""
    ordered = sorted(moves, key=lambda move: -float(move["probabilities"][place]))[:top]
    return [MovePercent(san=move["san"], percent=percent(move["probabilities"][place])) for move in ordered]


def _game(report: Mapping[str, Any], top: int) -> GameSummary:
    headers = report["headers"]
    first = 0 if not report["moves"] or report["moves"][0]["turn"] == "white" else 1
    surprising = sorted(report["moves"], key=lambda move: float(move["probability"]))[:top]
    return GameSummary(
        white=headers.get("White", "?"),
        black=headers.get("Black", "?"),
        result=headers.get("Result", "*"),
        white_moves=_player(report["white"]),
        black_moves=_player(report["black"]),
        surprising=[
            SurprisingMove(move=_numbered(move, first), percent=percent(move["probability"]), place=move["rank"])
            for move in surprising
        ],
    )


def _numbered(move: Mapping[str, Any], first: int) -> str:
    """The move with its number, counted from the game's first move; `first` is 1 if Black made it."""
    number = (move["ply"] - 1 + first) // 2 + 1
    return f"{number}{'.' if move['turn'] == 'white' else '...'}{move['san']}"


def _player(side: Mapping[str, Any] | None) -> PlayerSummary | None:
    if side is None:
        return None
    perplexity = side["perplexity"]
    typical = None if perplexity is None else percent(1 / perplexity)
    return PlayerSummary(moves=side["moves"], likeliest_percent=percent(side["top1"]), typical_percent=typical)
