"""The arguments of the methods of both clients: positions, and options by keyword."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import EllipsisType
from typing import TYPE_CHECKING, TypedDict

import chess

from movemask.schemas.choices import (
    CastlingName,
    GamesInclude,
    Include,
    Method,
    PolicyInclude,
    SweepInclude,
    VaryName,
)

if TYPE_CHECKING:  # imports numpy, which a client of a service does without
    from movemask.policy.normalisation import Normalizer, Temperature

#: A board, whose move stack is the history, or a FEN, or `startpos`.
PositionLike = chess.Board | str

#: The position of a request: `...` if the argument was left out, None if the program lost its position.
Given = PositionLike | EllipsisType | None

#: One rating for both players, or the ratings of the side to move and of its opponent; numpy's, too.
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


class NetworkOptions(RuleOptions, total=False):
    """The network, its ratings, and whether the game is Chess960."""

    model: str | None
    elo: Ratings | None
    chess960: bool


class BatchOptions(NetworkOptions, total=False):
    """Options of many policies."""

    include: Collection[Include]


class PlayedFrom(TypedDict, total=False):
    """A position by keyword: `moves`, in UCI or SAN, are played from `fen` or from the positional argument."""

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
    """The numbers to judge, and how to read them."""

    chess960: bool
    logits: Sequence[float | None]
    probabilities: Sequence[float]
    policy: Mapping[str, float] | Mapping[chess.Move, float]
    vocabulary: str
    castling: CastlingName
    threshold: float
    limit: int
