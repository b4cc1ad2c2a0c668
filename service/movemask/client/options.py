"""What the methods of both clients take: positions, and options by keyword."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from types import EllipsisType
from typing import TYPE_CHECKING, Literal, TypedDict

import chess

from movemask.api.schemas.answers import Include

if TYPE_CHECKING:  # imports numpy, which a client of a service does without
    from movemask.normalisation import Normalizer, Temperature

#: A board, whose move stack is the history, or a FEN, or `startpos`.
PositionLike = chess.Board | str

#: The position of a request. `...` stands for an argument that was left out; None is a position that was lost.
Given = PositionLike | EllipsisType | None

#: One rating for both players, or those of the side to move and of its opponent. Numbers and arrays of numpy count.
Ratings = float | Sequence[float]

#: A parameter of a query; None is left out.
Parameter = str | float | datetime | None


class RuleOptions(TypedDict, total=False):
    """How probabilities are made of logits: docs/numerics.md."""

    temperature: Temperature
    normalizer: Normalizer
    alpha: float
    top_k: int
    top_p: float
    min_p: float


class PolicyOptions(RuleOptions, total=False):
    """Options of policies, whatever their positions."""

    model: str | None
    elo: Ratings | None
    include: Sequence[Include | Literal["forecast"]] | AbstractSet[Include | Literal["forecast"]]
    chess960: bool


class PlayedFrom(TypedDict, total=False):
    """A position by keyword: `moves`, in UCI or SAN, are played from `fen`, or from the position that was given."""

    fen: str | None
    moves: Sequence[str | chess.Move] | None


class PositionOptions(PlayedFrom, PolicyOptions, total=False):
    """Options of one policy."""


class MoveOptions(PositionOptions, total=False):
    """Options of a move."""

    method: Literal["greedy", "sample"]
    seed: int
    clock: Mapping[str, float]


class SweepOptions(PositionOptions, total=False):
    """Options of a sweep."""

    ratings: Sequence[float]
    models: Sequence[str]
    vary: Literal["both", "self", "opponent"]


class GamesOptions(TypedDict, total=False):
    """Options of reports on games."""

    model: str | None
    temperature: Temperature | None
    include: Sequence[Literal["tree", "forecast"]] | AbstractSet[Literal["tree", "forecast"]]


class AuditOptions(PlayedFrom, total=False):
    """The numbers to judge, and how they are read."""

    logits: Sequence[float | None]
    probabilities: Sequence[float]
    policy: Mapping[str, float] | Mapping[chess.Move, float]
    vocabulary: str
    castling: Literal["king_two_squares", "king_takes_rook"]
    threshold: float
    limit: int
