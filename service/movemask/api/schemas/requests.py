"""The JSON of requests. Unknown fields are refused, so that a misspelt one is not silently ignored."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

import chess
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from movemask.api import problems
from movemask.api.bodies import MAX_PGN
from movemask.board.elo import Elo
from movemask.board.fen import MAX_LENGTH
from movemask.board.position import START_WORD
from movemask.errors import LimitExceeded
from movemask.pipeline import Query
from movemask.policy import CALIBRATED, Normalizer, Rule
from movemask.settings import Settings


def counted(field: str, unit: str, most: Callable[[Settings], int]) -> BeforeValidator:
    """A validator that limits the length of a list before its items are validated; raises LimitExceeded. `most` gives
    the limit from the settings, which are the validation's context."""

    def within(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, list) and info.context is not None and len(value) > (limit := most(info.context)):
            raise LimitExceeded(f"{field}: {len(value)} {unit}, at most {limit} are taken")
        return value

    return BeforeValidator(within)


Fen = Annotated[str, Field(max_length=MAX_LENGTH)]
Rating = Annotated[float, Field(ge=0, le=5000, allow_inf_nan=False)]
Temperature = Annotated[
    float,
    Field(gt=0, allow_inf_nan=False),
    WrapValidator(lambda value, read: CALIBRATED if value == "calibrated" else read(value)),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "calibrated"}]}),
]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Include = Literal["san", "logit", "statistics"]
Includes = Annotated[list[Include], Field(fail_fast=True), counted("include", "items", lambda _: 16)]
Moves = Annotated[
    list[Annotated[str, Field(max_length=8)]],
    Field(fail_fast=True),
    counted("moves", "moves", lambda settings: settings.max_moves),
]
NormalizerName = Literal["softmax", "softmax_one", "sparsemax", "entmax15", "entmax"]

MATE = "r1bqkb1r/pppp1Qpp/2n2n2/4p3/2B1P3/8/PPPP1PPP/RNB1K1NR b KQkq - 0 4"
PGN = '[White "A"]\n[Black "B"]\n[WhiteElo "1500"]\n[BlackElo "1600"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 *\n'


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class EloIn(_In):
    """Ratings of the side to move and of its opponent."""

    own: Rating = Field(alias="self")
    opponent: Rating


class RuleIn(_In):
    """The rule that turns logits into a distribution."""

    temperature: Temperature | None = Field(
        None, description="1, the network's own distribution, if left out; `calibrated` takes the contract's."
    )
    normalizer: NormalizerName | None = Field(None, description="softmax if left out.")
    alpha: Annotated[float, Field(ge=1, le=2, allow_inf_nan=False)] | None = Field(
        None, description="With `entmax`, and only there: 1 is softmax, 2 sparsemax."
    )
    top_k: int | None = Field(None, ge=1, description="Keep the k most probable moves.")
    top_p: Share | None = Field(
        None, description="Keep the fewest most probable moves whose probabilities sum to at least this."
    )
    min_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = Field(
        None, description="Keep moves with at least this share of the best's probability; 0 keeps all."
    )


class PositionIn(RuleIn):
    """A position: `fen`, or `moves` in UCI from the start position, or both: `moves` are then played from `fen`."""

    fen: Annotated[Fen | None, WithJsonSchema({"type": "string", "maxLength": 200})] = Field(
        None,
        description="`startpos` is the start position.",
        examples=[chess.STARTING_FEN],
    )
    moves: Moves = Field([], description="Without `fen`, from the start position.", examples=[["e2e4", "e7e5"]])
    chess960: bool | None = Field(None, description="Read the FEN, and write castling, as Chess960.")
    elo: EloIn | None = None

    @model_validator(mode="after")
    def _names_a_position(self) -> Self:
        check_position_named(self, self.fen)
        return self


class PolicyIn(PositionIn):
    """A request for one position."""

    model: str | None = Field(None, description="The default model if left out.")
    include: Includes = Field([], description="What to add to the answer.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"fen": chess.STARTING_FEN},
                {"moves": ["e2e4", "e7e5"], "elo": {"self": 1500, "opponent": 1500}, "include": ["san"]},
                {"fen": MATE},
                {"fen": START_WORD, "normalizer": "softmax_one", "top_k": 5, "include": ["statistics"]},
            ]
        }
    )


class MoveIn(PolicyIn):
    """A request for one move."""

    method: Literal["greedy", "sample"] = Field("greedy", description="The most probable move, or one drawn.")
    seed: int | None = Field(
        None, ge=0, lt=2**63, description="With `sample`, and only there; the same seed draws the same move."
    )

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"fen": chess.STARTING_FEN, "method": "sample", "seed": 7, "include": ["san"]},
                {"moves": ["e2e4"], "method": "sample", "top_p": 0.9, "temperature": 0.7},
            ]
        }
    )

    @model_validator(mode="after")
    def _seed_is_for_sample(self) -> Self:
        if self.seed is not None and self.method != "sample":
            raise _fault("seed", f"goes with method 'sample', not with {self.method!r}")
        return self


class InvalidItem(BaseModel):
    """Takes the place of an invalid position in a batch, so that the others are still answered."""

    problem: problems.Problem


def _captured(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        return InvalidItem(problem=problems.invalid_request(details, item="position"))
    except LimitExceeded as error:
        return InvalidItem(problem=problems.problem_of(error))


class BatchIn(RuleIn):
    """A request for many positions. The other fields are defaults for positions that do not set them."""

    positions: Annotated[
        list[Annotated[PositionIn, WrapValidator(_captured)]],
        counted("positions", "positions", lambda settings: settings.max_positions),
    ] = Field(min_length=1)
    model: str | None = None
    chess960: bool = False
    elo: EloIn | None = None
    include: Includes = []

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"positions": [{"fen": chess.STARTING_FEN}, {"moves": ["d2d4"]}, {"fen": "not a fen"}]}]
        }
    )


class GamesIn(_In):
    """A request to judge the moves of games."""

    pgn: str = Field(
        max_length=MAX_PGN, description="One game or several. Ratings are taken from WhiteElo and BlackElo."
    )
    model: str | None = Field(None, description="The default model if left out.")
    temperature: Temperature = 1.0

    model_config = ConfigDict(json_schema_extra={"examples": [{"pgn": PGN}]})


def check_position_named(request: BaseModel, fen: str | None) -> None:
    """Raises ValidationError for a request with neither `fen` nor `moves`: a client that lost its FEN gets no answer
    for another position."""
    if fen is None:
        if "fen" in request.model_fields_set:
            raise _fault("fen", f"is null, which names no position; give a FEN, or '{START_WORD}'")
        if "moves" not in request.model_fields_set:
            raise _fault("fen", f"is missing, as are moves: no position is named; give a FEN, or '{START_WORD}'")


def _fault(field: str, message: str) -> ValidationError:
    """The error of one field, for a validator of the whole model."""
    error = PydanticCustomError("invalid", "{message}", {"message": message})
    return ValidationError.from_exception_data("request", [{"type": error, "loc": (field,), "input": {}}])


def query_of(position: PositionIn, batch: BatchIn | None = None) -> Query:
    """The query for a position, with the batch's defaults; raises InvalidRule."""
    rating = position.elo or (batch.elo if batch else None)
    chess960 = batch.chess960 if batch and position.chess960 is None else bool(position.chess960)
    return Query(
        fen=position.fen,
        moves=tuple(position.moves),
        chess960=chess960,
        elo=Elo(rating.own, rating.opponent) if rating else None,
        rule=_rule(_rule_fields(position), _rule_fields(batch) if batch else _DEFAULTS, _DEFAULTS),
    )


_DEFAULTS: tuple[Any, ...] = ("softmax", None, 1.0, None, None, None)


def _rule_fields(rule: RuleIn) -> tuple[Any, ...]:
    """The fields of a rule in the order of `Rule`, None if unset."""
    return rule.normalizer, rule.alpha, rule.temperature, rule.top_k, rule.top_p, rule.min_p


@lru_cache(maxsize=256)  # most requests set none, and a batch sets the same for all
def _rule(*sources: tuple[Any, ...]) -> Rule:
    """The rule whose fields are each from the first of the sources that sets it; raises InvalidRule."""
    fields: list[Any] = [
        next((value for value in values if value is not None), None) for values in zip(*sources, strict=True)
    ]
    return Rule(Normalizer(fields[0]), *fields[1:])
