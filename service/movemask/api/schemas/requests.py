"""The JSON of requests. Unknown fields are refused, so that a misspelt one is not silently ignored."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal, Self

import chess
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from movemask.api import problems
from movemask.api.bodies import MAX_PGN
from movemask.api.schemas.fields import (
    Fen,
    In,
    Includes,
    Moves,
    NormalizerName,
    Ratings,
    Share,
    Temperature,
    counted,
)
from movemask.api.schemas.problem import Problem
from movemask.board.position import START_WORD, Elo
from movemask.errors import LimitExceeded
from movemask.pipeline import Query
from movemask.policy import Normalisation, Normalizer

MATE = "r1bqkb1r/pppp1Qpp/2n2n2/4p3/2B1P3/8/PPPP1PPP/RNB1K1NR b KQkq - 0 4"
PGN = '[White "A"]\n[Black "B"]\n[WhiteElo "1500"]\n[BlackElo "1600"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 *\n'

_MODEL = Field(
    None, description="Name of a model in `/v1/models`; the default model if left out.", examples=["maia-1500"]
)
_ELO = Field(
    None,
    description="Ratings in Elo points, as an object or as one number for both players; the network's default if left "
    "out. Networks without ratings ignore them, and say so in `ignored`.",
    examples=[{"self": 1500, "opponent": 1600}, 1500],
)
_INCLUDE: Any = Field(
    [], description="What to add to the answer: `san`, `logit` of each move, `statistics` of the distribution.",
    examples=[["san", "statistics"]],
)  # fmt: skip
_CHESS960 = "Read the FEN, and write castling (king takes rook), as Chess960."


class RuleIn(In):
    """The rule that turns logits into a distribution."""

    temperature: Temperature | None = Field(
        None,
        description="Logits are divided by it. 1, the network's own distribution, if left out; `calibrated` takes the "
        "contract's.",
        examples=[0.7, "calibrated"],
    )
    normalizer: NormalizerName | None = Field(
        None, description="The function from logits to probabilities; softmax if left out.", examples=["softmax"]
    )
    alpha: Annotated[float, Field(ge=1, le=2, allow_inf_nan=False)] | None = Field(
        None, description="With `entmax`, and only there: 1 is softmax, 2 sparsemax. No unit.", examples=[1.3]
    )
    top_k: int | None = Field(
        None, ge=1, description="Keep the k most probable moves: a number of moves.", examples=[5]
    )
    top_p: Share | None = Field(
        None,
        description="Keep the fewest most probable moves whose probabilities sum to at least this, 0 to 1.",
        examples=[0.9],
    )
    min_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = Field(
        None,
        description="Keep moves with at least this share of the best's probability, 0 to 1; 0 keeps all.",
        examples=[0.05],
    )


class PositionIn(RuleIn):
    """A position: `fen`, or `moves` from the start position, or both: `moves` are then played from `fen`."""

    fen: Annotated[Fen | None, WithJsonSchema({"type": "string", "maxLength": 200})] = Field(
        None,
        description="`startpos` is the start position.",
        examples=[chess.STARTING_FEN],
    )
    moves: Moves = Field(
        [],
        description="In UCI or SAN, from `fen`; without it, from the start position. The answer's `notation` says "
        "which was read.",
        examples=[["e2e4", "e7e5"], ["e4", "e5"]],
    )
    chess960: bool | None = Field(None, description=f"{_CHESS960} No if left out.", examples=[False])
    elo: Ratings | None = _ELO

    @model_validator(mode="after")
    def _names_a_position(self) -> Self:
        check_position_named(self, self.fen)
        return self


class PolicyIn(PositionIn):
    """A request for one position."""

    model: str | None = _MODEL
    include: Includes = _INCLUDE

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"fen": chess.STARTING_FEN},
                {"moves": ["e2e4", "e7e5"], "elo": {"self": 1500, "opponent": 1500}, "include": ["san"]},
                {"moves": ["e4", "e5", "Nf3"], "elo": 1500},
                {"fen": MATE},
                {"fen": START_WORD, "normalizer": "softmax_one", "top_k": 5, "include": ["statistics"]},
            ]
        }
    )


class MoveIn(PolicyIn):
    """A request for one move."""

    method: Literal["greedy", "sample"] = Field(
        "greedy", description="The most probable move, or one drawn by its probability.", examples=["sample"]
    )
    seed: int | None = Field(
        None,
        ge=0,
        lt=2**63,
        description="With `sample`, and only there; the same seed draws the same move. No unit.",
        examples=[7],
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

    problem: Problem


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
    ] = Field(
        min_length=1,
        description="At most MOVEMASK_MAX_POSITIONS; each may set a rule and ratings of its own.",
        examples=[[{"fen": START_WORD}, {"moves": ["d4"]}]],
    )
    model: str | None = _MODEL
    chess960: bool = Field(False, description=_CHESS960, examples=[False])
    elo: Ratings | None = _ELO
    include: Includes = _INCLUDE

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"positions": [{"fen": chess.STARTING_FEN}, {"moves": ["d2d4"]}, {"fen": "not a fen"}]}]
        }
    )


class GamesIn(In):
    """A request to judge the moves of games."""

    pgn: str = Field(
        max_length=MAX_PGN,
        description="One game or several. Ratings are taken from WhiteElo and BlackElo.",
        examples=[PGN],
    )
    model: str | None = _MODEL
    temperature: Temperature = Field(
        1.0, description="Logits are divided by it; `calibrated` takes the contract's.", examples=[1.0]
    )

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
    """The fields of a rule in the order of `Normalisation`, None if unset."""
    return rule.normalizer, rule.alpha, rule.temperature, rule.top_k, rule.top_p, rule.min_p


@lru_cache(maxsize=256)  # most requests set none, and a batch sets the same for all
def _rule(*sources: tuple[Any, ...]) -> Normalisation:
    """The rule whose fields are each from the first of the sources that sets it; raises InvalidRule."""
    fields: list[Any] = [
        next((value for value in values if value is not None), None) for values in zip(*sources, strict=True)
    ]
    return Normalisation(Normalizer(fields[0]), *fields[1:])
