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
    """Validation of a list stops at its first wrong item. An error takes a hundred times the memory of a short item."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
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
    """A function that makes the JSON objects that `model` describes, as dicts: its arguments are their fields.

    mypy takes the dicts for models, and so checks the names and types of all fields; nothing is checked at run time. A
    dict takes 0.15 µs, a model 1.9 µs, and an answer has some 40. Optional fields are left out unless they are given,
    or set as attributes afterwards. To read one, read the dict, or validate it.
    """
    return cast("Callable[P, M]", _Json)
