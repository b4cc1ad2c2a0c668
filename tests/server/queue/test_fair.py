"""Order of small and large submissions in batches."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from movemask.server.queue.fair import SHARE, SLICE, FairOrder, Item

ROOM = 64

#: Long after any small submission.
LATER = 1e6


def add(order: FairOrder[str], client: str, size: int, cost: float = 1, now: float = 0.0) -> None:
    """Adds a submission that is named as its client."""
    order.add(client, [Item(client, place, cost) for place in range(size)], now)


def taken(order: FairOrder[str], now: float = 0.0) -> Counter[str]:
    """How many items of each client are in the next batch."""
    return Counter(item.submission for item in order.take(ROOM, now))


def test_small_submission_is_in_the_next_batch() -> None:
    order = FairOrder[str]()
    for number in range(8):
        add(order, f"large {number}", 1024)
    taken(order)
    add(order, "small", 1)
    items = taken(order)
    assert items["small"] == 1
    assert items.total() <= 1 + SLICE


@pytest.mark.parametrize("size", [SHARE, 1000])
def test_clients_take_turns(size: int) -> None:
    order, served = FairOrder[str](), Counter[str]()
    for _ in range(100):
        add(order, "greedy", size)
    add(order, "modest", size)
    while served["modest"] < size:
        served += taken(order)
    assert served["greedy"] <= size + ROOM  # the rest of a batch


def test_large_submission_alone_fills_batches() -> None:
    order = FairOrder[str]()
    add(order, "large", 1000)
    assert taken(order, LATER) == {"large": ROOM}
    add(order, "small", 1, now=LATER)
    assert taken(order, LATER) == {"small": 1, "large": SLICE}
    assert taken(order, LATER + 0.05) == {"large": SLICE}, "another small one may come"
    assert taken(order, LATER + 0.15) == {"large": ROOM}
    add(order, "other", 1000, now=LATER)
    assert taken(order, LATER + 0.15).total() == SHARE, "each waits for a turn of the other, not for a batch"


def test_large_submissions_get_a_slice_of_each_batch() -> None:
    order = FairOrder[str]()
    add(order, "large", 1000)
    for number in range(1000):
        add(order, f"small {number}", 1)
    assert taken(order)["large"] == SLICE


@pytest.mark.parametrize("cost", [1, 1.5, 5])
@pytest.mark.parametrize(("room", "batches"), [(1, 4), (2, 2), (3, 2), (4, 1)])
def test_small_batches_reach_large_submissions(room: int, batches: int, cost: float) -> None:
    """With MOVEMASK_MAX_BATCH 1 or 2, a large submission once waited until no small one came."""
    order = FairOrder[str]()
    add(order, "large", 1000)
    for number in range(1000):
        add(order, f"small {number}", 1, cost)
    for _ in range(5):
        submissions = [item.submission for _ in range(batches) for item in order.take(room, 0)]
        assert submissions.count("large") == SLICE
        assert len(submissions) > 1


def test_costly_items_count_by_their_cost() -> None:
    order = FairOrder[str]()
    for number in range(4):
        add(order, f"long {number}", 64, cost=33)
    add(order, "small", 1)
    items = taken(order)
    assert items["small"] == 1
    assert items.total() == 2, "one long game beside the small one is a slice, and more"
    while order.waiting:
        assert taken(order).total() <= 4, "each client's turn is one long game"
    assert order.cost == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100), st.integers(1, 20)), min_size=1, max_size=20))
def test_items_are_taken_once_in_order(
    submissions: list[tuple[str, int, int]],
) -> None:
    order = FairOrder[int]()
    for number, (client, size, cost) in enumerate(submissions):
        order.add(client, [Item(number, place, cost) for place in range(size)], 0)
    order.remove(submissions[0][0], 0)
    assert order.waiting == sum(size for _, size, _ in submissions[1:])
    places: list[list[int]] = [[] for _ in submissions]
    while order.waiting:
        for item in order.take(ROOM, 0):
            places[item.submission].append(item.place)
    assert places == [[], *(list(range(size)) for _, size, _ in submissions[1:])]
    assert order.cost == 0
