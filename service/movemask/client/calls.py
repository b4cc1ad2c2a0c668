"""`Call`: a request and how its answer is read. Each is defined here once, for both clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypedDict, TypeVar

import chess
from pydantic import BaseModel, TypeAdapter

from movemask.api.schemas.answers import ErrorOut, Include, MoveChosenOut, PolicyOut
from movemask.api.schemas.games import GamesOut
from movemask.api.schemas.leakage import HistoryOut, LeakageFiguresOut, PositionsOut, WorstOut
from movemask.api.schemas.models import ModelEntryOut, ModelsOut
from movemask.api.schemas.operations import ReadyOut, VersionOut
from movemask.api.schemas.swept import SweepOut
from movemask.api.schemas.verdict import VerdictOut

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

#: A board, whose move stack is the history, or a FEN, or `startpos`.
Position = chess.Board | str

Elo = float | tuple[float, float]

#: What a service takes at most in one batch, by its defaults; one that takes less says so, and parts are halved.
MAX_POSITIONS = 1024
MAX_PLIES = 65_536

_RESULT: TypeAdapter[PolicyOut | ErrorOut] = TypeAdapter(PolicyOut | ErrorOut)


class RuleOptions(TypedDict, total=False):
    """How probabilities are made of logits: docs/rules.md."""

    temperature: float | Literal["calibrated"]
    normalizer: Literal["softmax", "softmax_one", "sparsemax", "entmax15", "entmax"]
    alpha: float
    top_k: int
    top_p: float
    min_p: float


class PolicyOptions(RuleOptions, total=False):
    """What can be asked beside a position. `elo` is one rating, or that of the side to move and its opponent's."""

    model: str
    elo: Elo
    include: Sequence[Include]
    chess960: bool


class SweepOptions(RuleOptions, total=False):
    """What can be asked of a sweep."""

    ratings: Sequence[float]
    models: Sequence[str]
    vary: Literal["both", "self", "opponent"]
    model: str
    elo: Elo
    include: Sequence[Literal["san", "statistics"]]
    chess960: bool


class AuditNumbers(TypedDict, total=False):
    """The numbers to audit, and how they are read."""

    logits: Sequence[float | None]
    probabilities: Sequence[float]
    policy: Mapping[str, float]
    vocabulary: str
    castling: Literal["king_two_squares", "king_takes_rook"]
    threshold: float
    limit: int


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request whose answer is of type `T`."""

    method: Literal["GET", "POST"]
    path: str
    answer: type[T]
    body: Mapping[str, Any] | None = None
    query: Mapping[str, str] | None = None
    accept: str = "application/json"

    def read(self, content: bytes) -> T:
        """The answer in a response's body."""
        if issubclass(self.answer, BaseModel):
            return self.answer.model_validate_json(content)
        assert self.answer is str
        return content.decode()  # type: ignore[return-value]


def policy(position: Position, moves: Sequence[str] | None, options: Mapping[str, Any]) -> Call[PolicyOut]:
    return Call("POST", "/v1/policy", PolicyOut, _named(position, moves) | _options(options))


def move(
    position: Position, moves: Sequence[str] | None, method: str, seed: int | None, options: Mapping[str, Any]
) -> Call[MoveChosenOut]:
    chosen = {"method": method} | ({} if seed is None else {"seed": seed})
    return Call("POST", "/v1/move", MoveChosenOut, _named(position, moves) | chosen | _options(options))


def sweep(position: Position, moves: Sequence[str] | None, options: Mapping[str, Any]) -> Call[SweepOut]:
    return Call("POST", "/v1/policy/sweep", SweepOut, _named(position, moves) | _options(options))


def batch(positions: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Call[str]:
    """A batch as a stream of lines; see `result`."""
    body = {"positions": positions} | _options(options)
    return Call("POST", "/v1/policy/batch", str, body, accept="application/x-ndjson")


def batches(positions: Iterable[Position]) -> Iterator[list[dict[str, Any]]]:
    """The positions as JSON, in parts that one request takes."""
    part: list[dict[str, Any]] = []
    plies = 0
    for position in positions:
        named = _named(position, None)
        length = len(named.get("moves", ()))
        if part and (len(part) == MAX_POSITIONS or plies + length > MAX_PLIES):
            yield part
            part, plies = [], 0
        part.append(named)
        plies += length
    if part:
        yield part


def result(line: str | bytes) -> PolicyOut | ErrorOut:
    """One line of a streamed batch."""
    return _RESULT.validate_json(line)


def games(pgn: str, model: str | None, temperature: float | str | None) -> Call[GamesOut]:
    return Call("POST", "/v1/games", GamesOut, _given(pgn=pgn, model=model, temperature=temperature))


def annotate(pgn: str, model: str | None, temperature: float | str | None) -> Call[str]:
    body = _given(pgn=pgn, model=model, temperature=temperature)
    return Call("POST", "/v1/games", str, body, accept="application/x-chess-pgn")


def audit(position: Position, moves: Sequence[str] | None, numbers: Mapping[str, Any]) -> Call[VerdictOut]:
    return Call("POST", "/v1/audit", VerdictOut, _named(position, moves) | dict(numbers))


def leakage(**query: str | None) -> Call[LeakageFiguresOut]:
    return Call("GET", "/v1/leakage", LeakageFiguresOut, query=_given(**query))


def history(**query: str | None) -> Call[HistoryOut]:
    return Call("GET", "/v1/leakage/history", HistoryOut, query=_given(**query))


def worst(**query: str | None) -> Call[WorstOut]:
    return Call("GET", "/v1/leakage/worst", WorstOut, query=_given(**query))


def positions(**query: str | None) -> Call[PositionsOut]:
    return Call("GET", "/v1/leakage/positions", PositionsOut, query=_given(**query))


def models() -> Call[ModelsOut]:
    return Call("GET", "/v1/models", ModelsOut)


def model(name: str) -> Call[ModelEntryOut]:
    return Call("GET", f"/v1/models/{name}", ModelEntryOut)


def ready() -> Call[ReadyOut]:
    return Call("GET", "/readyz", ReadyOut)


def version() -> Call[VersionOut]:
    return Call("GET", "/v1/version", VersionOut)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _named(position: Position, moves: Sequence[str] | None) -> dict[str, Any]:
    """A position as the fields of a request."""
    if isinstance(position, str):
        return {"fen": position} | _given(moves=None if moves is None else list(moves))
    board = position.root()
    named: dict[str, Any] = {"fen": board.fen(en_passant="fen")}
    played = [one.uci() for one in position.move_stack]
    if played or moves:
        named["moves"] = [*played, *(moves or ())]
    if position.chess960:
        named["chess960"] = True
    return named


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as fields of a request; a pair of ratings as an object."""
    fields = _given(**options)
    if isinstance(fields.get("elo"), tuple):
        fields["elo"] = {"self": fields["elo"][0], "opponent": fields["elo"][1]}
    for name in ("include", "ratings", "models"):
        if name in fields:
            fields[name] = list(fields[name])
    return fields
