"""JSON of requests and answers: fields, lists, many names, finite numbers."""

from __future__ import annotations

import json

import orjson
import pytest
from pydantic import TypeAdapter, ValidationError

from movemask.schemas.answers import EloOut, IllegalOut, MoveOut, PolicyOut
from movemask.schemas.shapes import as_json


def test_json_has_only_set_fields() -> None:
    move = as_json(MoveOut)(uci="e2e4", probability=0.5)
    assert orjson.loads(orjson.dumps(move)) == {"uci": "e2e4", "probability": 0.5}
    move.san = "e4"
    assert json.loads(json.dumps(move)) == {"uci": "e2e4", "probability": 0.5, "san": "e4"}
    assert MoveOut.model_validate(move) == MoveOut(uci="e2e4", san="e4", probability=0.5)
    assert orjson.dumps(as_json(EloOut)(self=1500, opponent=1600)) == b'{"self":1500,"opponent":1600}'


def test_list_stops_at_first_invalid_item() -> None:
    """An error takes a hundred times the memory of a short item, so that a million of them end a process."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(PolicyOut).validate_python({"moves": [{}] * 1000})
    assert [error["loc"] for error in caught.value.errors() if error["loc"][0] == "moves"] == [
        ("moves", 0, "uci"),
        ("moves", 0, "probability"),
    ]


def test_object_with_many_names_is_rejected() -> None:
    causes = {f"cause {number}": "x" for number in range(10_001)}
    with pytest.raises(ValidationError) as caught:
        IllegalOut.model_validate({"slots": 1, "moves": [], "causes": causes})
    (error,) = caught.value.errors()
    assert (error["loc"], error["msg"]) == (("causes",), "Value error, an object of more than 10,000 fields")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_answer_numbers_are_finite(number: float) -> None:
    with pytest.raises(ValidationError, match="finite number"):
        MoveOut(uci="e2e4", probability=number)
