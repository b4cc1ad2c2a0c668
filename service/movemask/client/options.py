"""What the methods of both clients take: positions, and options by keyword."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import EllipsisType
from typing import Literal, TypedDict

import chess

from movemask.schemas.choices import (
    CastlingName,
    GamesInclude,
    Include,
    Method,
    NormalizerName,
    PolicyInclude,
    SweepInclude,
    VaryName,
)

#: A board, whose move stack is the history, or a FEN, or `startpos`.
PositionLike = chess.Board | str

#: The position of a request. `...` stands for an argument that was left out; None is a position that was lost.
Given = PositionLike | EllipsisType | None

#: One rating for both players, or those of the side to move and of its opponent. Numbers and arrays of numpy count.
Ratings = float | Sequence[float]

Temperature = float | Literal["calibrated"]

#: A parameter of a query; None is left out.
Parameter = str | float | datetime | None


class RuleOptions(TypedDict, total=False):
    """How probabilities are made of logits: docs/numerics.md."""

    temperature: Temperature
    normalizer: NormalizerName
    alpha: float
    top_k: int
    top_p: float
    min_p: float


class NetworkOptions(RuleOptions, total=False):
    """Which network is asked, and how."""

    model: str | None
    elo: Ratings | None
    chess960: bool


class BatchOptions(NetworkOptions, total=False):
    """Options of many policies."""

    include: Collection[Include]


class PlayedFrom(TypedDict, total=False):
    """A position by keyword: `moves`, in UCI or SAN, are played from `fen`, or from the position that was given."""

    fen: str | None
    moves: Sequence[str | chess.Move] | None


class PolicyOptions(PlayedFrom, NetworkOptions, total=False):
    """Options of one policy."""

    include: Collection[PolicyInclude]


class MoveOptions(PlayedFrom, NetworkOptions, total=False):
    """Options of a move."""

    include: Collection[Include]
    method: Method
    seed: int
    clock: Mapping[str, float]


class SweepOptions(PlayedFrom, NetworkOptions, total=False):
    """Options of a sweep."""

    include: Collection[SweepInclude]
    ratings: Sequence[float]
    models: Sequence[str]
    vary: VaryName


class GamesOptions(TypedDict, total=False):
    """Options of reports on games."""

    model: str | None
    temperature: Temperature | None
    include: Collection[GamesInclude]


class AuditOptions(PlayedFrom, total=False):
    """The numbers to judge, and how they are read."""

    chess960: bool
    logits: Sequence[float | None]
    probabilities: Sequence[float]
    policy: Mapping[str, float] | Mapping[chess.Move, float]
    vocabulary: str
    castling: CastlingName
    threshold: float
    limit: int
