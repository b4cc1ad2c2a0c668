"""Requests and responses as JSON. Unknown fields are refused, so that a misspelt one is not silently ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import chess
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from service.api.problems import Problem
from service.audit.leakage import Leakage
from service.audit.store import ModelFigures, WorstPosition
from service.encoding.encoded import Elo
from service.inference.model import Model
from service.inference.registry import Entry
from service.pipeline import Answer, Query

Fen = Annotated[str, Field(max_length=200)]
Rating = Annotated[float, Field(ge=0, le=5000, allow_inf_nan=False)]
Temperature = Annotated[float, Field(gt=0, allow_inf_nan=False, description="1 is the network's own distribution.")]
Include = Literal["san", "logit", "statistics"]

MATE = "r1bqkb1r/pppp1Qpp/2n2n2/4p3/2B1P3/8/PPPP1PPP/RNB1K1NR b KQkq - 0 4"


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class EloIn(_In):
    """Ratings of the side to move and of its opponent."""

    own: Rating = Field(alias="self")
    opponent: Rating


class PositionIn(_In):
    """A position: `fen` (the start position if left out), then `moves` in UCI played from it."""

    fen: Fen | None = Field(None, examples=[chess.STARTING_FEN])
    moves: list[Annotated[str, Field(max_length=8)]] = Field([], examples=[["e2e4", "e7e5"]])
    chess960: bool | None = Field(None, description="Read the FEN, and write castling, as Chess960.")
    elo: EloIn | None = None
    temperature: Temperature | None = None


class PolicyIn(PositionIn):
    """One position, and how to answer."""

    model: str | None = Field(None, description="The default model if left out.")
    include: list[Include] = Field([], description="What to add to the answer.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"fen": chess.STARTING_FEN},
                {"moves": ["e2e4", "e7e5"], "elo": {"self": 1500, "opponent": 1500}, "include": ["san"]},
                {"fen": MATE},
            ]
        }
    )


class MoveIn(PolicyIn):
    """One position, and how to choose a move."""

    method: Literal["greedy", "sample"] = Field("greedy", description="The most probable move, or one drawn.")
    seed: int | None = Field(None, ge=0, lt=2**63, description="For `sample`; the same seed draws the same move.")

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"fen": chess.STARTING_FEN, "method": "sample", "seed": 7, "include": ["san"]}]}
    )


class InvalidItem(BaseModel):
    """What stands for a position of a batch that is not one: its errors, so that the others are still answered."""

    errors: list[Any]


def _captured(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError as error:
        return InvalidItem(errors=error.errors(include_url=False))


class BatchIn(_In):
    """Positions, and what holds for those that do not say otherwise."""

    positions: list[Annotated[PositionIn, WrapValidator(_captured)]] = Field(min_length=1)
    model: str | None = None
    chess960: bool = False
    elo: EloIn | None = None
    temperature: Temperature = 1.0
    include: list[Include] = []

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"positions": [{"fen": chess.STARTING_FEN}, {"moves": ["d2d4"]}, {"fen": "not a fen"}]}]
        }
    )


class ModelOut(BaseModel):
    """The network that answered."""

    name: str
    digest: str


class EloOut(BaseModel):
    """The ratings that the network was given: as asked, the contract's default, or the nearest it knows."""

    own: float = Field(serialization_alias="self")
    opponent: float


class MoveOut(BaseModel):
    uci: str
    san: str | None = Field(None, description="On request.")
    probability: float
    logit: float | None = Field(None, description="On request; as the network gave it.")


class ValueOut(BaseModel):
    """Probabilities of the game's result, from the point of view of the side to move."""

    win: float
    draw: float
    loss: float


class LeakageOut(BaseModel):
    raw: float | None = Field(
        description="What plain softmax gives to illegal moves; null if an illegal logit is NaN/inf."
    )
    multiplied: float = Field(description="What softmax(logits * mask) gives to illegal moves.")
    served: float = Field(description="What this answer gives to illegal moves.")
    trained_with_mask: bool = Field(description="If true, raw leakage is arbitrary and means nothing.")


class StatisticsOut(BaseModel):
    entropy: float = Field(description="In nats.")
    effective_moves: float = Field(description="exp(entropy).")
    maximum: float


class TimingOut(BaseModel):
    queue_ms: float
    inference_ms: float


class _Head(BaseModel):
    """Which network, which position."""

    model: ModelOut
    fen: str
    turn: Literal["white", "black"]
    status: Literal["ongoing", "checkmate", "stalemate"]


class _Moves(BaseModel):
    moves: list[MoveOut] = Field(description="Every legal move, most probable first.")


class _Chosen(BaseModel):
    move: MoveOut | None = Field(description="null where there is no legal move.")
    method: Literal["greedy", "sample"]
    seed: int | None = Field(None, description="What `sample` drew with.")


class _Tail(BaseModel):
    """What else is known. Without a legal move there is no leakage, value or timing."""

    value: ValueOut | None = None
    leakage: LeakageOut | None = None
    statistics: StatisticsOut | None = None
    elo: EloOut | None = None
    ignored: list[str] = Field(description="Inputs that this network cannot use, such as history.")
    timing: TimingOut | None = None


# Fields come in the order of the bases from right to left: the moves stand before what is less often read.
class PolicyOut(_Tail, _Moves, _Head):
    """The policy of a position."""


class MoveChosenOut(_Tail, _Chosen, _Head):
    """The move that was chosen."""


class ErrorOut(BaseModel):
    error: Problem


class BatchOut(BaseModel):
    results: list[PolicyOut | ErrorOut]


class KindOut(BaseModel):
    """Count, mean and maximum are exact, quantiles within 1 %."""

    count: int
    unmeasured: int = Field(description="Answers whose illegal logits were NaN or +inf.")
    mean: float | None
    max: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    p999: float | None


class ModelLeakageOut(BaseModel):
    digest: str
    positions: int
    trained_with_mask: bool
    kinds: dict[str, KindOut]


class LeakageFiguresOut(BaseModel):
    models: dict[str, ModelLeakageOut]


class IllegalMoveOut(BaseModel):
    uci: str
    probability: float


class WorstPositionOut(BaseModel):
    fen: str
    chess960: bool
    model: str
    digest: str
    time: float = Field(description="Seconds since 1970.")
    raw: float | None
    multiplied: float
    legal_moves: int
    illegal: list[IllegalMoveOut] = Field(description="Illegal moves that plain softmax gives most, heaviest first.")


class WorstOut(BaseModel):
    positions: list[WorstPositionOut]


class ModelEntryOut(BaseModel):
    """A model of the folder. `failure` says why it is not served."""

    name: str
    default: bool
    served: bool
    failure: str | None = None
    digest: str | None = None
    contract: dict[str, Any] | None = None
    card: dict[str, Any] | None = None


class ModelsOut(BaseModel):
    models: list[ModelEntryOut]


def query_of(asked: PositionIn, chess960: bool = False, elo: EloIn | None = None, temperature: float = 1.0) -> Query:
    """The query in a request, with a batch's own values where it says nothing."""
    rating = asked.elo or elo
    return Query(
        fen=asked.fen,
        moves=tuple(asked.moves),
        chess960=chess960 if asked.chess960 is None else asked.chess960,
        elo=Elo(rating.own, rating.opponent) if rating else None,
        temperature=temperature if asked.temperature is None else asked.temperature,
    )


def policy_out(answer: Answer, model: Model, include: list[Include]) -> PolicyOut:
    """An answer as JSON has it; fields that do not apply are left unset."""
    moves = range(len(answer.policy.moves)) if answer.policy else range(0)
    return PolicyOut(**_position(answer, model, include), moves=[_move(answer, index, include) for index in moves])


def move_out(answer: Answer, model: Model, asked: MoveIn, chosen: int | None, seed: int | None) -> MoveChosenOut:
    """The chosen move (by its index in the policy) as JSON has it."""
    move = None if chosen is None else _move(answer, chosen, asked.include)
    drawn = {} if seed is None else {"seed": seed}
    return MoveChosenOut(**_position(answer, model, asked.include), move=move, method=asked.method, **drawn)


def figures_out(figures: list[ModelFigures]) -> LeakageFiguresOut:
    """The audit's figures as JSON has them."""
    return LeakageFiguresOut(
        models={
            model.name: ModelLeakageOut(
                digest=model.digest,
                positions=model.positions,
                trained_with_mask=model.trained_with_mask,
                kinds={
                    name: KindOut(
                        count=kind.count, unmeasured=kind.unmeasured, mean=kind.mean, max=kind.max, **kind.quantiles
                    )
                    for name, kind in model.kinds.items()
                },
            )
            for model in figures
        }
    )


def worst_out(positions: list[WorstPosition]) -> WorstOut:
    """The worst positions as JSON has them."""
    return WorstOut(
        positions=[
            WorstPositionOut(
                fen=position.fen,
                chess960=position.chess960,
                model=position.model,
                digest=position.digest,
                time=position.time,
                raw=position.raw,
                multiplied=position.multiplied,
                legal_moves=position.legal_moves,
                illegal=[IllegalMoveOut(uci=uci, probability=mass) for uci, mass in position.illegal],
            )
            for position in positions
        ]
    )


def entry_out(entry: Entry, default: str) -> ModelEntryOut:
    """A model of the registry as JSON has it."""
    out: dict[str, Any] = {"name": entry.name, "default": entry.name == default, "served": entry.model is not None}
    if entry.failure is not None:
        out["failure"] = entry.failure
    if entry.model is not None:
        out["digest"] = entry.model.digest
    if entry.contract is not None:
        out["contract"] = entry.contract.model_dump(mode="json", exclude={"card"})
        out["card"] = entry.contract.card
    return ModelEntryOut(**out)


def _position(answer: Answer, model: Model, include: list[Include]) -> dict[str, Any]:
    out: dict[str, Any] = {
        "model": ModelOut(name=model.name, digest=model.digest),
        "fen": answer.position.fen,
        "turn": answer.position.turn,
        "status": answer.status,
        "ignored": list(answer.ignored),
    }
    if answer.value is not None:
        win, draw, loss = answer.value
        out["value"] = ValueOut(win=win, draw=draw, loss=loss)
    if answer.leakage is not None:
        out["leakage"] = _leakage(answer.leakage, model)
    if answer.elo is not None:
        out["elo"] = EloOut(own=answer.elo.self, opponent=answer.elo.opponent)
    if answer.timing is not None:
        out["timing"] = TimingOut(queue_ms=1e3 * answer.timing.queue, inference_ms=1e3 * answer.timing.inference)
    if "statistics" in include and answer.policy is not None:
        out["statistics"] = StatisticsOut(
            entropy=answer.policy.entropy,
            effective_moves=answer.policy.effective_moves,
            maximum=answer.policy.maximum,
        )
    return out


def _leakage(leakage: Leakage, model: Model) -> LeakageOut:
    return LeakageOut(
        raw=leakage.raw,
        multiplied=leakage.multiplied,
        served=leakage.served,
        trained_with_mask=model.trained_with_mask,
    )


def _move(answer: Answer, index: int, include: list[Include]) -> MoveOut:
    assert answer.policy is not None
    move = answer.policy.moves[index]
    out: dict[str, Any] = {"uci": move.uci()}
    if "san" in include:
        out["san"] = answer.position.board.san(move)
    out["probability"] = float(answer.policy.probabilities[index])
    if "logit" in include:
        out["logit"] = float(answer.policy.logits[index])
    return MoveOut(**out)
