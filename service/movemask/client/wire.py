"""What a request may hold, how it is written, and how an error is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import chess

from movemask import __version__
from movemask.api.schemas.answers import Include, Problem
from movemask.errors import ApiError, InvalidParameter

if TYPE_CHECKING:  # imports numpy, which a client of a service does without
    from movemask.normalisation import Normalizer, Temperature

#: A board, whose move stack is the history, or a FEN, or `startpos`.
PositionLike = chess.Board | str

#: What a request is given as its position: one, none, or one that was lost.
Given = PositionLike | EllipsisType | None

Ratings = float | tuple[float, float]


class RuleOptions(TypedDict, total=False):
    """How probabilities are made of logits: docs/numerics.md."""

    temperature: Temperature
    normalizer: Normalizer
    alpha: float
    top_k: int
    top_p: float
    min_p: float


class PolicyOptions(RuleOptions, total=False):
    """What can be asked beside positions. `elo` is one rating, or that of the side to move and its opponent's."""

    model: str | None
    elo: Ratings | None
    include: Sequence[Include | Literal["forecast"]]
    chess960: bool


class PlayedFrom(TypedDict, total=False):
    """A position by keywords: `moves`, in UCI or SAN, are played from it, or from `fen`."""

    fen: str | None
    moves: Sequence[str] | None


class PositionOptions(PlayedFrom, PolicyOptions, total=False):
    """What can be asked beside a position."""


class MoveOptions(PositionOptions, total=False):
    """What can be asked of a move."""

    method: Literal["greedy", "sample"]
    seed: int
    clock: Mapping[str, float]


class SweepOptions(PositionOptions, total=False):
    """What can be asked of a sweep."""

    ratings: Sequence[float]
    models: Sequence[str]
    vary: Literal["both", "self", "opponent"]


class GamesOptions(TypedDict, total=False):
    """What can be asked beside games."""

    model: str | None
    temperature: Temperature | None
    include: Sequence[Literal["tree", "forecast"]]


class AuditOptions(PlayedFrom, total=False):
    """The numbers to audit, and how they are read."""

    logits: Sequence[float | None]
    probabilities: Sequence[float]
    policy: Mapping[str, float]
    vocabulary: str
    castling: Literal["king_two_squares", "king_takes_rook"]
    threshold: float
    limit: int


def fields_of(position: Given, options: Mapping[str, Any]) -> dict[str, Any]:
    """A position and options as the fields of a request.

    A position that is None is sent as null, and one that was left out is not sent: the service refuses a request that
    names none, in place of answering for the start position. Raises InvalidParameter for what is no position.
    """
    fields = {name: value for name, value in options.items() if value is not None or name == "fen"}
    if isinstance(position, chess.Board):
        moves = [*(move.uci() for move in position.move_stack), *fields.get("moves", ())]
        fields = {"fen": position.root().fen(en_passant="fen")} | fields | ({"moves": moves} if moves else {})
        fields |= {"chess960": True} if position.chess960 else {}
    elif position is None or isinstance(position, str):
        fields = {"fen": position} | fields
    elif position is not ...:
        raise InvalidParameter(f"position: {str(position)[:60]!r} is neither a chess.Board nor a FEN")
    if isinstance(elo := fields.get("elo"), tuple) and len(elo) == 2:
        fields["elo"] = {"self": elo[0], "opponent": elo[1]}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


#: Positions that a service takes in one batch, by its defaults; one that takes less says so, and parts are halved.
_MAX_POSITIONS = 1024


def batches(positions: Iterable[PositionLike]) -> Iterator[list[dict[str, Any]]]:
    """The positions as JSON, in parts that one request takes."""
    left = iter(positions)
    while part := [fields_of(position, {}) for position in islice(left, _MAX_POSITIONS)]:
        yield part


def headers(key: str | None) -> dict[str, str]:
    """The headers of every request."""
    return {"User-Agent": f"movemask/{__version__}"} | ({"Authorization": f"Bearer {key}"} if key else {})


def error_of(status: int, content: bytes) -> ApiError:
    """The error in a response; without a problem document (a proxy's page, say) the status says what happened."""
    try:
        problem = Problem.model_validate_json(content)
    except ValueError:
        return ApiError(
            status, "about:blank", f"HTTP {status}", f"the service answered {status} without a problem document"
        )
    return error_of_problem(problem)


def error_of_problem(problem: Problem) -> ApiError:
    """A problem as an exception."""
    return ApiError(
        problem.status, problem.type, problem.title, problem.detail, problem.request_id, problem.model_extra or {}
    )
