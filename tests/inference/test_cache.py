"""What a user of the cache would lose: the right network's word on the right position, and a bound on memory."""

from __future__ import annotations

import numpy as np
import pytest

from movemask.board.elo import Elo
from movemask.board.position import Position
from movemask.inference.cache import EvaluationCache, key_of
from movemask.inference.model import Evaluation
from tests.networks import fake_model


def row(number: float, size: int = 100, *, value: bool = False) -> Evaluation:
    logits = np.full((3, size), number, dtype=np.float32)
    return Evaluation(logits, np.full((3, 3), number) if value else None).part(slice(1, 2))


def test_what_was_put_is_found_and_holds_nothing_but_itself() -> None:
    cache = EvaluationCache(10_000)
    cache.put("a", row(1.0, value=True))
    found = cache.get("a")
    assert found is not None
    assert found.value is not None
    assert found.logits.tolist() == [[1.0] * 100]
    assert found.value.tolist() == [[1.0] * 3]
    assert found.logits.base is None  # not a view, which would keep its whole batch
    assert cache.get("b") is None


def test_the_least_recently_used_is_forgotten_and_the_bound_is_kept() -> None:
    cache = EvaluationCache(4 * 1200)
    for number in range(4):
        cache.put(number, row(number))
    assert len(cache) == 4
    cache.get(0)
    cache.put(4, row(4.0))
    assert [cache.get(number) is not None for number in range(5)] == [True, False, True, True, True]
    assert cache.bytes <= 4 * 1200
    cache.put(5, row(5.0, size=10_000))  # more than there is room for
    assert cache.get(5) is None
    assert len(cache) == 4


def test_off_keeps_nothing() -> None:
    cache = EvaluationCache(0)
    cache.put("a", row(1.0))
    assert not cache.on
    assert (len(cache), cache.bytes) == (0, 0)


@pytest.mark.parametrize(("planes", "sees_history"), [("lc0-112", True), ("movemask-18", False)])
def test_positions_are_told_apart_by_what_the_network_sees(planes: str, sees_history: bool) -> None:
    model = fake_model(planes=planes, words="lc0-1858")
    assert model.contract.takes_history == sees_history

    def key(position: Position, elo: Elo | None = None) -> object:
        return key_of(model.encode(position, elo), model)

    short = Position.read(moves=["g1f3", "g8f6"])
    other = Position.read(short.fen, [])
    assert (key(short) == key(other)) is not sees_history
    assert key(short) == key(Position.read(moves=["g1f3", "g8f6"]))
    assert key(other) != key(Position.read(other.fen.replace(" w ", " b ")))
    assert key(other) != key(Position.read(other.fen.replace(" 2 2", " 3 2")))
    assert key(other) != key(Position.read(other.fen, chess960=True))
