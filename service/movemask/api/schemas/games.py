"""The JSON of `POST /v1/games`."""

from __future__ import annotations

from pydantic import BaseModel, Field

from movemask.api.schemas.answers import IGNORED, TURN, ErrorOut, LeakageOut, ModelOut, Turn


class PlayedOut(BaseModel):
    """A move that was played."""

    ply: int = Field(description="Number of the move in the game, in plies from 1.", examples=[3])
    turn: Turn = TURN
    uci: str = Field(description="The move in UCI.", examples=["g1f3"])
    san: str = Field(description="The move in SAN.", examples=["Nf3"])
    probability: float = Field(description="Probability that the network gives the move, 0 to 1.", examples=[0.62])
    rank: int = Field(
        description="Place of the move among the legal moves; 1 is the network's first choice.", examples=[1]
    )
    surprise: float | None = Field(
        description="-log p, in nats, finite even where p underflows to 0; null where -log p overflows.",
        examples=[0.478],
    )
    leakage: LeakageOut = Field(description="What illegal moves would have got from a wrong mask.")


class SideOut(BaseModel):
    """One side's moves."""

    moves: int = Field(description="Number of moves that the side made.", examples=[34])
    cross_entropy: float | None = Field(description="Mean surprise, in nats; null on overflow.", examples=[1.72])
    perplexity: float | None = Field(
        description="exp(cross_entropy): a number of moves; null on overflow.", examples=[5.58]
    )
    top1: float = Field(description="Share of moves that were the network's first choice, 0 to 1.", examples=[0.47])
    raw_leakage: float | None = Field(
        description="Mean probability that plain softmax gives to illegal moves; null if it cannot be measured.",
        examples=[0.0044],
    )
    multiplied_leakage: float = Field(
        description="Mean probability that softmax(logits * mask) gives to illegal moves.", examples=[0.9]
    )


class GameOut(BaseModel):
    """A game."""

    headers: dict[str, str] = Field(
        description="The PGN's headers.", examples=[{"Event": "?", "White": "A", "Black": "B", "Result": "*"}]
    )
    chess960: bool = Field(description="Whether it is a game of Chess960.", examples=[False])
    ignored: list[str] = IGNORED
    elo: dict[str, float] | None = Field(
        None,
        description="Ratings that the network was given, by side, in Elo points; left out for networks without.",
        examples=[{"white": 1500.0, "black": 1600.0}],
    )
    white: SideOut | None = Field(description="White's moves; null without any.")
    black: SideOut | None = Field(description="Black's moves; null without any.")
    moves: list[PlayedOut] = Field(description="The moves, in order.")


class GamesOut(BaseModel):
    """Reports on the games of a PGN."""

    model: ModelOut = Field(description="The network that judged.")
    temperature: float | None = Field(
        description="What the logits were divided by; null if no game could be judged.", examples=[1.0]
    )
    games: list[GameOut | ErrorOut] = Field(description="One for each game, in order.")
