"""Names of choices and options, in requests, clients and the core."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from movemask.board.moves import Notation
from movemask.board.position import Draw
from movemask.client import options
from movemask.encoding.vocabulary import Castling
from movemask.games.sweep import Vary
from movemask.schemas import answers, choices
from movemask.server.api import requests

#: Each request, the options of its method in the Python clients, and fields that are no options.
SENT: list[tuple[type[requests.In], Any, set[str]]] = [
    (requests.PolicyIn, options.PolicyOptions, set()),
    (requests.MoveIn, options.MoveOptions, set()),
    (requests.BatchIn, options.BatchOptions, {"positions"}),
    (requests.SweepIn, options.SweepOptions, set()),
    (requests.GamesIn, options.GamesOptions, {"pgn"}),
    (requests.AuditIn, options.AuditOptions, set()),
]


@pytest.mark.parametrize(("request_model", "method_options", "others"), SENT)
def test_client_options_match_request_fields(
    request_model: type[requests.In], method_options: Any, others: set[str]
) -> None:
    names = method_options.__optional_keys__ | method_options.__required_keys__
    assert set(request_model.model_fields) == names | others


def test_choices_match_core_names() -> None:
    for words, values in (
        (choices.VaryName, Vary),
        (choices.CastlingName, Castling),
        (answers.Notation, Notation),
        (answers.DrawReason, Draw),
    ):
        assert set(get_args(words)) == {value.value for value in values}
