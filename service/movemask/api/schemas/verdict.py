"""The JSON of the answers of `POST /v1/audit`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from movemask.api.schemas.answers import FEN, TURN, IllegalMoveOut
from movemask.api.schemas.leakage import FigureOut


class TopOut(BaseModel):
    """The most probable move."""

    uci: str = Field(description="The move in UCI.", examples=["e2e4"])
    legal: bool = Field(description="Whether it can be played.", examples=[True])


class PatternOut(BaseModel):
    """A known mistake that the numbers resemble."""

    pattern: Literal["multiplied", "uniform", "castling_slot", "bare_promotion"] = Field(
        description="The mistake.", examples=["multiplied"]
    )
    share: float = Field(description="Probability that the mistake accounts for.", examples=[0.05])
    detail: str = Field(
        description="What was found, for people.", examples=["1,800 illegal slots have the same probability"]
    )


class VerdictOut(BaseModel):
    """What leaks: how much, to which moves, and why they are illegal."""

    fen: str = Field(description="The position, after `moves`.", examples=[FEN])
    turn: Literal["white", "black"] = TURN
    notation: Literal["uci", "san", "mixed"] | None = Field(
        None, description="How the request's `moves` were read; null without any.", examples=["uci"]
    )
    legal_moves: int = Field(description="Number of legal moves.", examples=[20])
    kinds: dict[str, FigureOut] = Field(
        description="For logits, every kind; for probabilities `given`: the illegal share of their sum."
    )
    sum: float | None = Field(description="Sum of the probabilities; null for logits.", examples=[1.0])
    top: TopOut = Field(description="The most probable move.")
    missing: list[str] = Field(description="Legal moves with no probability at all, in UCI.", examples=[["a2a3"]])
    causes: dict[str, float] = Field(
        description="The whole illegal share by cause: probabilities.", examples=[{"wrong_geometry": 0.2}]
    )
    illegal: list[IllegalMoveOut] = Field(
        description="Most probable first, at most `limit`. A slot is named by its own squares: in `lc0-1858` e1h1 is "
        "castling, and e1g1 another slot."
    )
    patterns: list[PatternOut] = Field(description="Known mistakes that the numbers resemble.")
