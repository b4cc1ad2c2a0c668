"""The requests of `POST /v1/policy/sweep`, and its answers written as the JSON that `swept` describes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import chess
from pydantic import ConfigDict, Field, model_validator

from movemask.api.schemas.fields import Rating, counted
from movemask.api.schemas.requests import PositionIn
from movemask.api.schemas.writing import Json, network_out, tail_out, where_out
from movemask.board.moves import moves_of, uci_of
from movemask.board.position import Position
from movemask.pipeline import Answer

Ratings = Annotated[
    list[Rating],
    Field(min_length=1, fail_fast=True),
    counted("ratings", "ratings", lambda settings: settings.max_positions),
]
Names = Annotated[
    list[Annotated[str, Field(max_length=200)]],
    Field(min_length=1, fail_fast=True),
    counted("models", "models", lambda settings: settings.max_positions),
]


class SweepIn(PositionIn):
    """A request for one position at many ratings, or by many models."""

    ratings: Ratings | None = Field(
        None,
        description="In Elo points; if left out, every hundred from 800 to 2500, as far as the network's range goes.",
        examples=[[1100, 1500, 1900]],
    )
    vary: Literal["both", "self", "opponent"] | None = Field(
        None, description="Whose rating changes; both if left out. `elo` has the other's.", examples=["self"]
    )
    model: str | None = Field(
        None, description="Name of a model in `/v1/models`; the default model if left out.", examples=["maia-1500"]
    )
    models: Names | None = Field(
        None,
        description="In place of `ratings`: one answer by each, for networks of one rating.",
        examples=[["maia-1100", "maia-1900"]],
    )
    include: Annotated[
        list[Literal["san", "statistics"]], Field(fail_fast=True), counted("include", "items", lambda _: 16)
    ] = Field([], description="What to add to the answer.", examples=[["san"]])

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"fen": chess.STARTING_FEN, "ratings": [1100, 1500, 1900], "include": ["san"]},
                {"moves": ["e2e4"], "vary": "self", "elo": {"self": 1500, "opponent": 2000}},
                {"fen": "startpos", "models": ["maia-1100", "maia-1500", "maia-1900"]},
            ]
        }
    )

    @model_validator(mode="after")
    def _ratings_or_models(self) -> SweepIn:
        if self.models is not None:
            for name in ("model", "ratings", "vary"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name}: goes without models, which take the place of ratings")
        if self.vary in (None, "both") and self.elo is not None and self.models is None:
            raise ValueError("elo: gives the rating that stays; it goes with vary 'self' or 'opponent', or with models")
        return self


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a sweep, copied from its answer."""

    codes: list[int]
    probabilities: list[float]
    where: Json
    out: Json


def point_of(answer: Answer, statistics: bool) -> Point:
    """The point of an answer."""
    codes, probabilities = answer.policy
    tail = tail_out(answer, ["statistics"] if statistics else [])
    return Point(codes, probabilities, where_out(answer), network_out(answer) | tail)


def sweep_out(points: Sequence[Point], position: Position, *, san: bool) -> Json:
    """The JSON of a `SweepOut`. Plays moves on the position's board and takes them back, so nothing else may use it."""
    lines: dict[int, list[float]] = {}
    for number, point in enumerate(points):
        for code, probability in zip(point.codes, point.probabilities, strict=True):
            lines.setdefault(code, [0.0] * len(points))[number] = probability
    codes = sorted(lines, key=lambda code: -sum(lines[code]))
    moves = [{"uci": uci, "probabilities": lines[code]} for code, uci in zip(codes, uci_of(codes), strict=True)]
    if san:
        for move_json, move in zip(moves, moves_of(codes), strict=True):
            move_json["san"] = position.board.san(move)
    return {**points[0].where, "points": [point.out for point in points], "moves": moves}
