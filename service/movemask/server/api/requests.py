"""The JSON of requests. Unknown fields are refused, so that a misspelt field is never ignored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from movemask.board.position import MAX_LENGTH, START_WORD, Elo
from movemask.board.rating import MAX_RATING
from movemask.errors import LimitExceeded, MovemaskError
from movemask.evaluate import Query
from movemask.games.think_time import LONGEST
from movemask.policy.normalisation import (
    Alpha,
    MinP,
    Normalisation,
    Normalizer,
    Temperature,
    TemperatureField,
    TopK,
    TopP,
)
from movemask.schemas.choices import (
    CastlingName,
    GamesInclude,
    Include,
    Method,
    PolicyInclude,
    SplitInclude,
    SweepInclude,
    VaryName,
)
from movemask.server import problems
from movemask.server.edge.limits import RequestLimits

MAX_PGN = 500_000  # characters
MAX_SLOTS = 8_192  # no vocabulary is larger
MAX_POSITIONS = 1_024  # of any setting


def counted(
    field: str, unit: str, most: Callable[[RequestLimits], int]
) -> Callable[[Any, ValidationInfo], Any]:
    """Returns a validator that limits the length of a list.

    Raises LimitExceeded. `most` gives the limit from the limits that are the validation's context.
    """

    def within(value: Any, info: ValidationInfo) -> Any:
        if (
            isinstance(value, list)
            and info.context is not None
            and len(value) > (limit := most(info.context))
        ):
            raise LimitExceeded(f"{field}: {len(value)} {unit}; at most {limit} are allowed")
        return value

    return within


ModelName = Annotated[str, Field(max_length=200)]
Fen = Annotated[str, Field(max_length=MAX_LENGTH)]
Rating = Annotated[float, Field(ge=0, le=MAX_RATING)]


def _above_zero(temperature: Temperature) -> Temperature:
    if temperature == 0:
        raise ValueError(
            "Input should be greater than 0: at 0 a move that is not the most probable has no surprise"
        )
    return temperature


AboveZero = Annotated[
    TemperatureField,
    AfterValidator(_above_zero),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "calibrated"}]}),
]
Includes = Annotated[list[Include], Field(fail_fast=True, max_length=16)]
Moves = Annotated[
    list[Annotated[str, Field(max_length=12)]],
    Field(fail_fast=True),
    BeforeValidator(counted("moves", "moves", lambda limits: limits.moves)),
]


class In(BaseModel):
    """Base class of requests and their parts. Unknown fields are refused, and no value is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class EloIn(In):
    """Ratings of the side to move and of its opponent."""

    own: Rating = Field(alias="self", description="Rating of the side to move, in Elo points.")
    opponent: Rating = Field(description="Rating of its opponent, in Elo points.")


def _both(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value <= MAX_RATING:
            raise ValueError(f"Input should be a rating from 0 to {MAX_RATING}")
        return {"self": value, "opponent": value}
    if not isinstance(value, dict | EloIn):
        raise ValueError("Input should be a rating, or an object of two: self and opponent")
    return value


Ratings = Annotated[EloIn, BeforeValidator(_both, json_schema_input_type=EloIn | Rating)]


_MODEL = Field(None, description="Name of a model in `/v1/models`; otherwise the default model.")
_ELO = Field(
    None,
    description="Ratings in Elo points: an object, or one number for both players. Defaults to the network's own. "
    "Networks without ratings ignore them, and say so in `ignored`.",
)
#: The default of lists: an empty list would be copied for every position.
_EMPTY: Any = ()

_INCLUDE: Any = Field(
    _EMPTY, description="What to add: `san` and `logit` of moves, `statistics`, `illegal` moves."
)
_CHESS960 = "Read the FEN and write castling (king takes rook) as Chess960."


class RuleIn(In):
    """The rule that turns logits into a distribution."""

    temperature: TemperatureField | None = Field(
        None,
        description="Logits are divided by it. Default 1; 0 leaves the most probable move; `calibrated` uses the "
        "contract's temperature.",
    )
    normalizer: Normalizer | None = Field(
        None, description="Turns logits into probabilities; by default softmax."
    )
    alpha: Alpha = None
    top_k: TopK = None
    top_p: TopP = None
    min_p: MinP = None


class PlacedIn(In):
    """Base class of requests that name a position."""

    fen: Annotated[Fen | None, WithJsonSchema({"type": "string", "maxLength": 200})] = Field(
        None, description="A FEN; `startpos` is the start position."
    )
    moves: Moves = Field(
        _EMPTY, description="Moves in UCI or SAN, from `fen` or the start position."
    )

    @model_validator(mode="after")
    def _names_a_position(self) -> Self:
        """A client that lost its FEN gets no answer for another position."""
        fault = None
        if self.fen is None and "fen" in self.model_fields_set:
            fault = "is null, which names no position"
        elif self.fen is None and "moves" not in self.model_fields_set:
            fault = "is missing, as are moves: no position is named"
        if fault is not None:
            raise problems.invalid_field("fen", f"{fault}; give a FEN, or '{START_WORD}'")
        return self


class PositionIn(PlacedIn, RuleIn):
    """A position: `fen`, or `moves` from the start position, or both: `moves` are then played from `fen`."""

    chess960: bool | None = Field(None, description=f"{_CHESS960} By default no.")
    elo: Ratings | None = _ELO


class OneIn(PositionIn):
    """Base class of requests for one position."""

    model: ModelName | None = _MODEL


class PolicyIn(OneIn):
    """A request for one position."""

    include: list[PolicyInclude] = Field(
        _EMPTY,
        fail_fast=True,
        max_length=16,
        description="As in a batch, and `forecast`, which runs the network on three more positions.",
    )


class ClockIn(In):
    """The clock of the side to move."""

    remaining: float = Field(ge=0, le=LONGEST, description="Seconds left on the clock.")
    increment: float = Field(0, ge=0, le=LONGEST, description="Seconds added for each move.")


class MoveIn(OneIn):
    """A request for one move."""

    include: Includes = _INCLUDE
    method: Method = Field("greedy", description="The best move, or one drawn by probability.")
    seed: int | None = Field(
        None, ge=0, lt=2**63, description="For `sample`: same seed, same move. No unit."
    )
    clock: ClockIn | None = Field(
        None, description="Adds `seconds`: how long a human would think on this clock."
    )

    @model_validator(mode="after")
    def _seed_is_for_sample(self) -> Self:
        if self.seed is not None and self.method != "sample":
            raise problems.invalid_field("seed", f"needs method 'sample', not {self.method!r}")
        return self


Id = Annotated[str, Field(max_length=128, strict=True)]
_ID: TypeAdapter[str | None] = TypeAdapter(Id | None)


class BatchPositionIn(PositionIn):
    """A position of a batch."""

    id: Id | None = Field(None, description="Your name for the position. The result repeats it.")


@dataclass(frozen=True)
class InvalidItem:
    """An invalid position of a batch."""

    error: MovemaskError
    id: str | None


def _captured(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """Returns a position of a batch, or an InvalidItem, so that the other positions are still
    answered.
    """
    try:
        return read(value)
    except ValidationError as error:
        failure = problems.invalid_request(error, BatchPositionIn, item="position")
    except MovemaskError as error:
        failure = error
    return InvalidItem(failure, _id_of(value))


def _id_of(value: Any) -> str | None:
    """Returns the id of an invalid position, if the id itself is valid."""
    try:
        return _ID.validate_python(value.get("id")) if isinstance(value, dict) else None
    except ValidationError:
        return None


class BatchIn(RuleIn):
    """A request for many positions. The other fields are defaults for positions that do not set them."""

    positions: Annotated[
        list[Annotated[BatchPositionIn, WrapValidator(_captured)]],
        Field(min_length=1, max_length=MAX_POSITIONS),
        AfterValidator(counted("positions", "positions", lambda limits: limits.positions)),
    ] = Field(description="At most MOVEMASK_MAX_POSITIONS; each may set its own rule and ratings.")
    model: ModelName | None = _MODEL
    chess960: bool = Field(False, description=_CHESS960)
    elo: Ratings | None = _ELO
    include: Includes = _INCLUDE


class GamesIn(In):
    """A request to analyse games."""

    pgn: str = Field(
        max_length=MAX_PGN,
        description="One or more games. Ratings: WhiteElo and BlackElo, from 100 to 4000; if only one is given, it is "
        "used for both.",
    )
    model: ModelName | None = _MODEL
    temperature: AboveZero = Field(
        1.0, description="Logits are divided by it; `calibrated` uses the contract's."
    )
    include: list[GamesInclude] = Field(
        _EMPTY,
        max_length=6,
        description="`tree`: also comments and variations. `partial`: a game with a move that cannot be played is read "
        "up to it, with a note, instead of giving an error. `forecast`: for each move, as for a policy. `evaluations`: "
        "the service's engine evaluates the positions that have no `[%eval]`, some 50 in a second, and searches those "
        "around mistakes again, deeper. `reasons`: it also searches those around mistakes by `[%eval]` deeper, so that "
        "they get a `reason`. `ratings`: how likely moves 7 to 36 are at nine ratings.",
    )


class SplitIn(In):
    """A request to split a PGN."""

    pgn: str = Field(max_length=MAX_PGN, description="Any text, with or without games.")
    include: list[SplitInclude] = Field(
        _EMPTY,
        max_length=2,
        description="`tree`: each game as it was read, with comments and variations. `partial`: with `tree`, also a "
        "game with a move that cannot be played, up to it.",
    )


SweptRatings = Annotated[
    list[Rating],
    Field(min_length=1, max_length=MAX_POSITIONS, fail_fast=True),
    AfterValidator(counted("ratings", "ratings", lambda limits: limits.positions)),
]
Names = Annotated[
    list[ModelName],
    Field(min_length=1, max_length=MAX_POSITIONS, fail_fast=True),
    AfterValidator(counted("models", "models", lambda limits: limits.positions)),
]


class SweepIn(PositionIn):
    """A request for one position at many ratings, or by many models."""

    ratings: SweptRatings | None = Field(
        None, description="In Elo points; by default every hundred from 800 to 2500."
    )
    vary: VaryName | None = Field(None, description="Whose rating changes; by default both.")
    model: ModelName | None = _MODEL
    models: Names | None = Field(
        None, description="Instead of `ratings`: one answer from each of these networks."
    )
    include: list[SweepInclude] = Field(
        _EMPTY, fail_fast=True, max_length=16, description="What to add to the answer."
    )

    @model_validator(mode="after")
    def _ratings_or_models(self) -> SweepIn:
        if self.models is not None:
            for name in ("model", "ratings", "vary"):
                if getattr(self, name) is not None:
                    raise problems.invalid_field(
                        name, "cannot be combined with models, which replace the ratings"
                    )
        if self.vary in (None, "both") and self.elo is not None and self.models is None:
            fault = "is the rating that stays the same, so it needs vary 'self' or 'opponent', or models"
            raise problems.invalid_field("elo", fault)
        return self


Number = Annotated[float | None, Field(allow_inf_nan=True)]


class AuditIn(PlacedIn):
    """Numbers for one position: exactly one of `logits`, `probabilities` and `policy`."""

    chess960: bool = Field(False, description="Read the FEN as Chess960.")
    vocabulary: str | None = Field(
        None, max_length=40, description="What each slot of `logits` or `probabilities` stands for."
    )
    logits: list[Number] | None = Field(
        None,
        fail_fast=True,
        max_length=MAX_SLOTS,
        description="`[A]`, in nats; null stands for -infinity.",
    )
    probabilities: list[float] | None = Field(
        None,
        fail_fast=True,
        max_length=MAX_SLOTS,
        description="`[A]`, each from 0 to 1. Figures are shares of their sum.",
    )
    policy: dict[Annotated[str, Field(max_length=8)], float] | None = Field(
        None,
        max_length=MAX_SLOTS,
        description="UCI moves and their probabilities; needs no vocabulary.",
    )
    castling: CastlingName | None = Field(
        None,
        description="With `policy`: how castling is written, e1g1 or e1h1. If left out, either is accepted.",
    )
    threshold: float = Field(
        0, ge=0, le=1, description="Leave out illegal moves below this probability, 0 to 1."
    )
    limit: int = Field(
        20, ge=0, le=1000, description="Most illegal moves to list: a number of moves."
    )

    @model_validator(mode="after")
    def _one_form(self) -> AuditIn:
        forms = [
            name
            for name in ("logits", "probabilities", "policy")
            if getattr(self, name) is not None
        ]
        if len(forms) != 1:
            fault = f"give exactly one of logits, probabilities and policy, not {' and '.join(forms) or 'none'}"
            raise problems.invalid_field(forms[-1] if forms else "body", fault)
        if (self.vocabulary is None) != (forms == ["policy"]):
            raise problems.invalid_field(
                "vocabulary",
                "is required with logits or probabilities, and not allowed with policy",
            )
        if self.castling is not None and forms != ["policy"]:
            raise problems.invalid_field(
                "castling", "is allowed only with policy, because a vocabulary has its own form"
            )
        return self


def query_of(position: PositionIn, batch: BatchIn | None = None) -> Query:
    """Returns the query for a position, with the batch's defaults; raises InvalidRule."""
    elo, chess960, rule = position.elo, position.chess960, _given(position)
    if batch is not None:
        elo = elo or batch.elo
        chess960 = batch.chess960 if chess960 is None else chess960
        rule = tuple(
            usual if own is None else own for own, usual in zip(rule, _given(batch), strict=True)
        )
    return Query(
        fen=position.fen,
        moves=tuple(position.moves),
        chess960=bool(chess960),
        elo=Elo(elo.own, elo.opponent) if elo else None,
        rule=_rule(rule),
    )


_RULE_FIELDS = tuple(field.name for field in fields(Normalisation))

#: The fields of a rule, None if unset.
_given: Callable[[RuleIn], tuple[Any, ...]] = attrgetter(*_RULE_FIELDS)


@lru_cache(maxsize=256)  # most requests set none, and a batch sets the same for all
def _rule(fields: tuple[Any, ...]) -> Normalisation:
    values = zip(_RULE_FIELDS, fields, strict=True)
    return Normalisation(**{name: value for name, value in values if value is not None})
