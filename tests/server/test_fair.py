"""What a user would lose: an answer soon, beside clients with thousands of positions or very long games."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from movemask.server.fair import SMALL, TURN, Entry, FairOrder

ROOM, SLICE = 64, 8.0

#: Long after any small submission.
LATER = 1e6


def submitted(client: str, size: int, cost: int = 1) -> Entry:
    return Entry(client, range(0, size * cost + 1, cost))


def taken(order: FairOrder[Entry], now: float = 0.0) -> Counter[str]:
    """How many items of each client are in the next batch."""
    items: Counter[str] = Counter()
    for entry, _, size, _ in order.take(ROOM, SLICE, now):
        items[entry.client] += size
    return items


def test_a_short_one_is_in_the_next_batch_however_much_waits() -> None:
    order = FairOrder[Entry]()
    for number in range(8):
        order.add(submitted(f"large {number}", 1024), 0)
    taken(order)
    order.add(submitted("small", 1), 0)
    assert order.cost_before(submitted("another", 1), SLICE) <= SLICE + 1
    assert order.cost_before(submitted("another", 1000), SLICE) > 8000
    items = taken(order)
    assert items["small"] == 1
    assert items.total() <= 1 + SLICE


@pytest.mark.parametrize("size", [SMALL, 1000])
def test_clients_take_turns_whatever_they_send(size: int) -> None:
    order, given = FairOrder[Entry](), Counter[str]()
    for _ in range(100):
        order.add(submitted("greedy", size), 0)
    order.add(submitted("modest", size), 0)
    while given["modest"] < size:
        given += taken(order)
    assert given["greedy"] <= size + ROOM  # the rest of a batch


def test_a_large_one_has_whole_batches_only_while_nobody_else_waits_or_is_expected() -> None:
    order = FairOrder[Entry]()
    order.add(submitted("large", 1000), 0)
    assert taken(order, LATER) == {"large": ROOM}
    order.add(submitted("small", 1), LATER)
    assert taken(order, LATER) == {"small": 1, "large": SLICE}
    assert taken(order, LATER + 0.5) == {"large": SLICE}, "another small one may come"
    assert taken(order, LATER + 1.5) == {"large": ROOM}
    order.add(submitted("other", 1000), LATER)
    assert taken(order, LATER + 1.5).total() == SLICE, "each waits for a slice of the other, not for a batch"


def test_large_ones_get_a_slice_however_many_small_ones_wait() -> None:
    order = FairOrder[Entry]()
    order.add(submitted("large", 1000), 0)
    for number in range(1000):
        order.add(submitted(f"small {number}", 1), 0)
    assert taken(order)["large"] == SLICE
    assert sum(size for entry, _, size, _ in order.take(8, SLICE, 0) if entry.client == "large") == 2  # a quarter


def test_long_games_give_others_no_longer_waits_than_as_many_positions_would() -> None:
    order = FairOrder[Entry]()
    for number in range(4):
        order.add(submitted(f"long {number}", 64, cost=33), 0)
    order.add(submitted("small", 1), 0)
    items = taken(order)
    assert items["small"] == 1
    assert items.total() == 2, "one long game beside the small one is a slice, and more"
    while order.items:
        assert taken(order).total() <= 4, "each client's turn is one long game"
    assert order.cost == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100), st.integers(1, 20)), min_size=1, max_size=20))
def test_every_item_is_taken_once_and_in_order_and_what_is_removed_is_not(
    submissions: list[tuple[str, int, int]],
) -> None:
    order = FairOrder[Entry]()
    entries = [submitted(*submission) for submission in submissions]
    for entry in entries:
        order.add(entry, 0)
    removed, items = entries[0], dict.fromkeys(entries, 0)
    order.remove(removed)
    while order.items:
        for entry, first, size, _ in order.take(ROOM, SLICE, 0):
            assert first == items[entry]
            items[entry] += size
    expected = {
        entry: 0 if entry is removed else size for entry, (_, size, _) in zip(entries, submissions, strict=True)
    }
    assert items == expected
    assert order.cost == 0


def test_a_turn_is_no_more_than_a_small_submission() -> None:
    """Otherwise a client with one small submission would wait for more than that of another."""
    assert TURN <= SMALL
