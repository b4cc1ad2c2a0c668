"""Client arguments: numpy numbers and arrays, boards, moves, times; errors that name the argument."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import chess
import chess.variant
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import movemask
from movemask.client.fields import batches, body_of, fields_of, query_of
from movemask.errors import InvalidParameter, UnsupportedVariant
from tests.client.through import through
from tests.conftest import Serve
from tests.networks import write_fake

np: Any = numpy  # type checkers know its numbers apart from Python's


@pytest.fixture
def client(serve: Serve, tmp_path: Path) -> movemask.Client:
    return movemask.Client(http=through(serve(write_fake(tmp_path / "m", elo=True, vocabulary="lc0-1858").parent)))


def sent(**options: Any) -> Any:
    """The JSON of a request about the start position."""
    return json.loads(body_of(fields_of("startpos", options)))


E4, E5 = chess.Move.from_uci("e2e4"), chess.Move.from_uci("e7e5")

#: What a program may have in place of the second.
CONVERTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"elo": np.int64(1500)}, {"elo": {"self": 1500, "opponent": 1500}}),
    ({"elo": np.float32(1500)}, {"elo": {"self": 1500, "opponent": 1500}}),
    ({"elo": np.array(1500)}, {"elo": {"self": 1500, "opponent": 1500}}),
    ({"elo": [1500, 1600]}, {"elo": {"self": 1500, "opponent": 1600}}),
    ({"elo": (np.int32(1500), 1600.0)}, {"elo": {"self": 1500, "opponent": 1600}}),
    ({"elo": np.array([1500, 1600])}, {"elo": {"self": 1500, "opponent": 1600}}),
    ({"elo": Fraction(3000, 2)}, {"elo": {"self": 1500, "opponent": 1500}}),
    ({"elo": {"self": np.int64(1500), "opponent": 1600}}, {"elo": {"self": 1500, "opponent": 1600}}),
    ({"temperature": np.float16(0.5)}, {"temperature": 0.5}),
    ({"temperature": Decimal("0.5")}, {"temperature": 0.5}),
    ({"top_k": np.uint8(3)}, {"top_k": 3}),
    ({"chess960": np.bool_(True)}, {"chess960": True}),
    ({"model": np.str_("fake")}, {"model": "fake"}),
    ({"include": {"san"}}, {"include": ["san"]}),
    ({"include": frozenset({"san", "logit"})}, {"include": ["logit", "san"]}),
    ({"include": {"san": 1}.keys()}, {"include": ["san"]}),
    ({"include": ("san",)}, {"include": ["san"]}),
    ({"include": np.array(["san", "logit"])}, {"include": ["san", "logit"]}),
    ({"ratings": np.arange(1000, 1300, 100)}, {"ratings": [1000, 1100, 1200]}),
    ({"ratings": list(np.arange(1000, 1300, 100))}, {"ratings": [1000, 1100, 1200]}),
    ({"ratings": range(1000, 1300, 100)}, {"ratings": [1000, 1100, 1200]}),
    ({"ratings": {1200, 1000, 1100}}, {"ratings": [1000, 1100, 1200]}),
    ({"models": {"b", "a"}}, {"models": ["a", "b"]}),
    ({"moves": [E4, E5]}, {"moves": ["e2e4", "e7e5"]}),
    ({"moves": deque([E4, "e5"])}, {"moves": ["e2e4", "e5"]}),
    ({"moves": np.array(["e4", "e5"])}, {"moves": ["e4", "e5"]}),
    ({"moves": (move for move in ("e4", "e5"))}, {"moves": ["e4", "e5"]}),
    ({"logits": np.array([0.5, 1.5], np.float32)}, {"logits": [0.5, 1.5]}),
    ({"logits": [np.float32(0.5), None, 1]}, {"logits": [0.5, None, 1]}),
    ({"probabilities": np.array([[0.5], [0.5]])[:, 0]}, {"probabilities": [0.5, 0.5]}),
    ({"policy": {"e2e4": np.float32(1)}}, {"policy": {"e2e4": 1}}),
    ({"policy": {E4: 1.0}}, {"policy": {"e2e4": 1}}),
    ({"policy": MappingProxyType({E4: np.float64(1)})}, {"policy": {"e2e4": 1}}),
    ({"clock": {"remaining": np.int64(60)}}, {"clock": {"remaining": 60}}),
    ({"seed": np.int64(7)}, {"seed": 7}),
]


@pytest.mark.parametrize(("arguments", "plain"), CONVERTED)
def test_python_values_become_json(arguments: dict[str, Any], plain: dict[str, Any]) -> None:
    assert sent(**arguments) == {"fen": "startpos", **plain}


_LOOP: list[Any] = []
_LOOP.append(_LOOP)
_DEEP: list[Any] = []
for _ in range(100_000):
    _DEEP = [_DEEP]

REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"elo": elo}, r"elo: .* is neither a rating nor") for elo in ("x", (1500,), [1, 2, 3], {1500}, True, "", b"1")),
    *(({"elo": elo}, r"elo: .* is neither a rating nor") for elo in (np.array([]), np.ones((2, 2)), np.True_)),
    *(({"elo": elo}, r"elo: .* is neither a rating nor") for elo in ((1500, None), 1j, Decimal(1500), (True, 1))),
    ({"temperature": 1j}, r"^temperature: 1j cannot be sent as JSON: a complex is neither a number nor"),
    ({"temperature": object}, r"^temperature: <class 'object'> cannot be sent as JSON: "),
    ({"top_k": 10**5000}, r"^top_k: (a long int|<int instance with .*>) cannot be sent as JSON: Exceeds the limit"),
    ({"include": (name for name in ("san",))}, r"^include: <generator .* cannot be sent as JSON: a generator is"),
    ({"include": {"san", 1}}, r"^include: .* cannot be sent as JSON: '<' not supported"),
    ({"ratings": [datetime(2026, 1, 1)]}, r"^ratings: .* cannot be sent as JSON: a datetime is"),
    ({"ratings": [np.datetime64("2026-01-01")]}, r"^ratings: .* cannot be sent as JSON: a date is"),
    ({"ratings": _LOOP}, r"^ratings: .* cannot be sent as JSON: Circular reference"),
    ({"moves": "e4 e5"}, r"^moves: 'e4 e5' is not a list, such as \['e4', 'e5'\]"),
    ({"elo": "1500"}, r"^elo: '1500' is neither .*; give a number, such as 1500"),
    ({"moves": b"e4"}, r"^moves: b'e4' is not a list"),
    ({"moves": {"e4", "e5"}}, r"^moves: .* is not a list"),
    ({"moves": 3}, r"^moves: 3 is not a list"),
    ({"moves": [b"e4"]}, r"^moves: \[b'e4'\] cannot be sent as JSON: a bytes is"),
    ({"logits": {0.5, 1.5}}, r"^logits: .* is not a list"),
    ({"probabilities": {"e2e4": 1}}, r"^probabilities: .* is not a list"),
    ({"policy": {"e2e4": 1j}}, r"^policy: .* cannot be sent as JSON: a complex is"),
    ({"policy": {b"e2e4": 1.0}}, r"^policy: .* cannot be sent as JSON: keys must be"),
    ({"clock": object()}, r"^clock: <object object at .*> cannot be sent as JSON: a object is"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_other_values_raise_with_argument_name(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words) as caught:
        sent(**arguments)
    assert len(str(caught.value)) < 300


def test_deeply_nested_value_is_named() -> None:
    with pytest.raises(InvalidParameter, match=r"^ratings: "):
        sent(ratings=_DEEP)


NUMBERS = st.one_of(hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes(sizes=(16, 32, 64)))


@given(hnp.arrays(NUMBERS, hnp.array_shapes(max_dims=1, max_side=20)))
def test_arrays_keep_their_numbers(array: Any) -> None:
    sent_back = json.loads(body_of(fields_of("startpos", {"logits": array})))["logits"]
    assert np.array_equal(np.array(sent_back, array.dtype), array, equal_nan=array.dtype.kind == "f")


def test_service_answers_numpy_arguments(client: movemask.Client) -> None:
    board = chess.Board()
    plain = client.policy(board, elo=(1500, 1600), include=["san"], top_k=3, temperature=0.5)
    result = client.policy(
        board, elo=np.array([1500, 1600]), include={"san"}, top_k=np.int8(3), temperature=np.float32(0.5)
    )
    assert result.moves == plain.moves
    ratings = np.arange(1000, 1300, 100)
    points = client.sweep("startpos", ratings=list(ratings)).points
    assert [point.elo.own for point in points if point.elo] == list(ratings)
    assert client.audit("startpos", vocabulary="lc0-1858", logits=np.zeros(1858, np.float32)).legal_moves == 20
    network = movemask.Policy(board, "x", {E4: 0.75, chess.Move.from_uci("e2e5"): 0.25})
    verdict = client.audit(board, policy=network.probabilities)
    assert [(move.uci, move.probability) for move in verdict.illegal] == [("e2e5", 0.25)]
    assert client.leakage_worst(limit=np.int64(1), until=datetime(2020, 1, 1, tzinfo=UTC)).positions == []
    positions = np.array([board.fen(), "startpos"])
    assert len(list(client.policies(positions, elo=np.int64(1500)))) == 2


def test_query_takes_texts_numbers_and_times() -> None:
    query = {"limit": np.int64(2), "since": 1.5, "until": datetime(2026, 1, 2, tzinfo=UTC), "model": "a", "by": None}
    texts = {"limit": "2", "since": "1.5", "until": "2026-01-02T00:00:00+00:00", "model": "a"}
    assert query_of(query) == texts
    wrongs: list[Any] = [True, [1], b"x", 1j]
    for wrong in wrongs:
        with pytest.raises(InvalidParameter, match=r"^limit: .* is neither a text nor a number nor a time"):
            query_of({"limit": wrong})


@pytest.mark.parametrize("wrong", ["startpos", b"x", chess.Board(), {"fen": "startpos"}, 3, None])
def test_single_position_for_batch_raises(client: movemask.Client, network: movemask.Network, wrong: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"^positions: .* is not a list of boards and FENs"):
        list(client.policies(wrong))
    if not isinstance(wrong, str | bytes | dict):
        with pytest.raises(InvalidParameter, match=r"^boards: .* is not a list of boards"):
            network.policies(wrong)


def test_wrong_position_of_batch_is_named() -> None:
    with pytest.raises(InvalidParameter, match=r"^positions\[1\]: 3 is neither a chess\.Board nor a FEN"):
        list(batches(["startpos", 3]))  # type: ignore[list-item]


VARIANTS = [board for board in chess.variant.VARIANTS if board is not chess.Board]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: str(variant.__name__))
def test_variant_boards_raise_everywhere(
    client: movemask.Client, network: movemask.Network, variant: type[chess.Board]
) -> None:
    """Antichess has one legal move where chess has 22, and a network of chess knows none of it."""
    board = variant()
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("position", lambda: client.policy(board)),
        ("position", lambda: client.move(board)),
        ("position", lambda: client.sweep(board, ratings=[1500])),
        ("position", lambda: client.audit(board, policy={"e2e4": 1.0})),
        (r"positions\[1\]", lambda: list(client.policies([chess.Board(), board]))),
        ("board", lambda: network.policy(board)),
        ("board", lambda: network.policies([chess.Board(), board])),
    ]
    for name, ask in calls:
        with pytest.raises(UnsupportedVariant, match=rf"^{name}: \w+ has other rules"):
            ask()


def test_chess960_and_board_subclass_are_accepted(client: movemask.Client, network: movemask.Network) -> None:
    class Board(chess.Board):
        """One with notes, say."""

    assert len(client.policy(Board()).moves) == 20
    assert len(network.policy(Board())) == 20
    assert client.policy(chess.Board.from_chess960_pos(1)).status == "ongoing"


@pytest.mark.parametrize(
    "elo", [np.int64(1500), np.array(1500.0), [1500, 1500], np.array([1500, 1500]), Fraction(1500)]
)
def test_local_network_takes_same_ratings(network: movemask.Network, elo: Any) -> None:
    boards = [chess.Board()] * 2
    plain = network.policy(boards[0], elo=1500).probabilities
    assert network.policy(boards[0], elo=elo).probabilities == plain
    assert network.policies(boards, elos=np.array([1500, 1500]))[1].probabilities == plain
    assert network.policies(boards, elos=np.full((2, 2), 1500))[1].probabilities == plain
    with pytest.raises(InvalidParameter, match="elos: 1 ratings for 2 boards"):
        network.policies(boards, elos=np.array([1500]))
    with pytest.raises(InvalidParameter, match="elos: 1500 is not a list of ratings"):
        network.policies(boards, elos=1500)  # type: ignore[arg-type]


def test_audit_policy_takes_numpy_numbers(network: movemask.Network) -> None:
    policy = network.policy(chess.Board(), temperature=np.float32(0.5), top_k=np.int64(5))
    assert policy.sample(seed=np.int64(7)) == policy.sample(seed=7)
    assert policy.shaped(np.float32(0.5)).probabilities == policy.shaped(0.5).probabilities
    for seed in (1.5, "x", -1):
        with pytest.raises(InvalidParameter, match=r"^seed: .* is not a whole number"):
            policy.sample(seed=seed)  # type: ignore[arg-type]
    for wrong in (-1, np.nan):
        with pytest.raises(movemask.MovemaskError, match=r"^temperature: "):
            policy.shaped(wrong)
    with pytest.raises(movemask.MovemaskError, match=r"^temperature: "):
        network.policy(chess.Board(), temperature=np.array([1.0, 2.0]))
