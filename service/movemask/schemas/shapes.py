"""What models of answers have in common; lists and objects that a client reads safely; JSON that is quick to write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ParamSpec, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound="Out")

_MOST_NAMES = 10_000


class Out(BaseModel):
    """Base class of answers and their parts. Unknown fields are ignored, so that a client can read a newer service."""

    model_config = ConfigDict(allow_inf_nan=False)


@dataclass(frozen=True)
class _StopAtFirst:
    """Ends the validation of a list at the first wrong item. An error takes 100 times the memory of a short item."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = handler(source)
        assert schema["type"] == "list"
        return {**schema, "fail_fast": True}


def _few(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > _MOST_NAMES:
        raise ValueError(f"an object of more than {_MOST_NAMES:,} fields")
    return value


#: A JSON array.
Items = Annotated[list[T], _StopAtFirst()]

#: A JSON object whose field names are data, of at most 10,000 fields.
ByName = Annotated[dict[str, T], BeforeValidator(_few)]


class _Json(dict[str, Any]):
    """A JSON object. Setting an attribute sets the field."""

    __slots__ = ()
    __setattr__ = dict.__setitem__


def as_json(model: Callable[P, M]) -> Callable[P, M]:
    """Returns a function that makes JSON objects of the shape of `model`: dicts, whose fields are its arguments.

    mypy takes the dicts for models, so it checks the names and types of their fields. Nothing is checked at run time: a
    dict takes 0.15 µs to make, a model 1.9 µs, and an answer has about 40 of them. Optional fields can be set later as
    attributes, and are left out of the JSON otherwise. To read a field, use `model.model_validate`.
    """
    return cast("Callable[P, M]", _Json)
