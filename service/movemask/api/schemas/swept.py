"""The JSON of the answers of `POST /v1/policy/sweep`."""

from __future__ import annotations

from pydantic import BaseModel, Field

from movemask.api.schemas.answers import Network, Tail, Where


class PointOut(Tail, Network):
    """One rating, or one model."""


class SweptOut(BaseModel):
    """A legal move along the sweep."""

    uci: str = Field(description="The move in UCI.", examples=["e7e5"])
    san: str | None = Field(None, description="The move in SAN; on request.", examples=["e5"])
    probabilities: list[float] = Field(
        description="Probability of the move at each point, 0 to 1; 0 where the filters drop it.",
        examples=[[0.31, 0.36, 0.41]],
    )


class SweepOut(Where):
    """One position at many ratings, or by many models."""

    points: list[PointOut] = Field(description="In the order of the ratings or models.")
    moves: list[SweptOut] = Field(description="Highest mean probability first.")
