"""What the models of answers have in common, so that a client can read what a broken server sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema

T = TypeVar("T")

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
