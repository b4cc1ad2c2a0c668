"""Types of the fields of requests: limits, and the JSON that stands for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    WrapValidator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from movemask.api.schemas.answers import Include
from movemask.board.position import MAX_LENGTH
from movemask.errors import LimitExceeded
from movemask.policy import CALIBRATED
from movemask.settings import Settings

#: The highest rating that is taken, in Elo points.
MAX_RATING = 5000


def counted(field: str, unit: str, most: Callable[[Settings], int]) -> BeforeValidator:
    """A validator that limits the length of a list before its items are validated; raises LimitExceeded. `most` gives
    the limit from the settings, which are the validation's context."""

    def within(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, list) and info.context is not None and len(value) > (limit := most(info.context)):
            raise LimitExceeded(f"{field}: {len(value)} {unit}, at most {limit} are taken")
        return value

    return BeforeValidator(within)


Fen = Annotated[str, Field(max_length=MAX_LENGTH)]
Rating = Annotated[float, Field(ge=0, le=MAX_RATING, allow_inf_nan=False)]
Temperature = Annotated[
    float,
    Field(gt=0, allow_inf_nan=False),
    WrapValidator(lambda value, read: CALIBRATED if value == "calibrated" else read(value)),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "calibrated"}]}),
]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Includes = Annotated[list[Include], Field(fail_fast=True), counted("include", "items", lambda _: 16)]
Moves = Annotated[
    list[Annotated[str, Field(max_length=8)]],
    Field(fail_fast=True),
    counted("moves", "moves", lambda settings: settings.max_moves),
]
NormalizerName = Literal["softmax", "softmax_one", "sparsemax", "entmax15", "entmax"]


class In(BaseModel):
    """Base class of what is sent: unknown fields are refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class EloIn(In):
    """Ratings of the side to move and of its opponent."""

    own: Rating = Field(alias="self", description="Rating of the side to move, in Elo points.", examples=[1500])
    opponent: Rating = Field(description="Rating of its opponent, in Elo points.", examples=[1600])


class _OneNumber:
    """Annotates `EloIn` fields that also take one number, for both players."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(_both, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [handler(schema), {"type": "number", "minimum": 0, "maximum": MAX_RATING}]}


def _both(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value <= MAX_RATING:
            raise ValueError(f"Input should be a rating from 0 to {MAX_RATING}")
        return {"self": value, "opponent": value}
    if not isinstance(value, dict | EloIn):
        raise ValueError("Input should be a rating, or an object of two: self and opponent")
    return value


Ratings = Annotated[EloIn, _OneNumber()]
